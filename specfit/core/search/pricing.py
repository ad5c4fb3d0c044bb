"""Pricers: turn predicted routing into demand, new nodes only, level by level."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.core.search import _level, _pricing, _routing
from specfit.core.search.demand import Demand
from specfit.core.search.problem import check_tree

_NO_INDPTR = np.zeros(0, np.int64)
_NO_COLS = np.zeros(0, np.int32)
_NO_MASK = np.zeros(0, bool)
_NO_MASK.flags.writeable = False
_FIRST_CAPACITY = 64
_INT16, _FLOAT64, _BOOL = np.dtype(np.int16), np.dtype(np.float64), np.dtype(np.bool_)


class Room(NamedTuple):
    """A pricer's memory, as the kernels take it; see `_pricing.price_probs`."""

    columns: NDArray[np.int64]
    factors: NDArray[np.float32]
    survival: NDArray[np.float32]
    values: NDArray[np.float32]
    weight_s: NDArray[np.float64]
    full_s: NDArray[np.float64]
    totals: NDArray[np.float64]


class ProbPricer:
    """Prices predicted *probabilities*; one object serves many cycles and keeps its memory.

    Parameters
    ----------
    discount : float
        Part of a node's demand that is forgiven where the node is sure to be accepted, 0 to 1: an
        expert that the likely path needs next cycle anyway is not an extra cost now. Node v is
        charged ``1 - discount * P(v)`` of its demand, the root all of its.

    Attributes
    ----------
    num_nodes : int
        Nodes of this cycle that are priced.
    """

    def __init__(self, discount: float = 0.0) -> None:
        if not 0.0 <= discount <= 1.0:
            raise InvalidInputError(f"discount must be from 0 to 1; got {discount}.")
        self.discount = discount
        self._survival = np.zeros((0, 0), np.float32)
        self._values = np.zeros((0, 0), np.float32)
        self._full_s = np.zeros(0)
        self._factors = np.zeros(0, np.float32)

    def start(
        self, weight_s: NDArray[np.float64], is_priced: NDArray[np.bool_] | None = None
    ) -> None:
        """Begin a cycle with the weights float64[L, E], seconds.

        Only the experts in `is_priced`, bool[L, E], are looked at; without it those of weight above
        0.
        """
        self._shape = (weight_s.shape[0], weight_s.shape[1])
        flat = np.array(weight_s, np.float64).reshape(-1)
        experts = np.flatnonzero(flat if is_priced is None else is_priced)
        self._is_whole = 2 * len(experts) > len(flat)
        self._experts = np.arange(len(flat)) if self._is_whole else experts
        self._weight_s = flat if self._is_whole else flat[experts]
        self._totals = np.zeros(len(self._weight_s))
        self.num_nodes = 0
        if self._values.shape[1] != len(self._weight_s):
            self._allocate(max(_FIRST_CAPACITY, len(self._values)))

    @property
    def is_free(self) -> bool:
        """Whether no expert costs anything, so that no probabilities are needed."""
        return not self._weight_s.size

    def extend(
        self,
        parents: NDArray[np.int32],
        path_probs: NDArray[np.float64],
        probs: NDArray[np.float32] | None,
    ) -> None:
        """Price the nodes that are new since the last call.

        Parameters
        ----------
        parents : int32[N]
            Of the whole tree so far; nodes priced before keep their index.
        path_probs : float64[N]
            Of the whole tree so far.
        probs : float32[n, L, E]
            Routing probabilities of the n new nodes only; not read, and may be None, if `is_free`.
        """
        first, count = self.num_nodes, len(parents)
        room = self.room(count)
        if self.is_free:
            room.factors[first:count] = 1.0
            room.full_s[first:count] = 0.0
            self.num_nodes = count
            return
        flat = self.flat(probs, count - first)
        bad = _pricing.price_probs(
            flat, np.array(parents, np.int32), np.array(path_probs, np.float64), self.discount,
            first, *room,
        )  # fmt: skip
        if bad >= 0:
            raise self.fault(flat, bad)
        self.num_nodes = count

    def answer(
        self,
        parents: NDArray[np.int32],
        path_probs: NDArray[np.float64],
        probs: NDArray[np.float32] | None,
        task: tuple[Any, ...],
    ) -> int:
        """Price the new nodes, search and look ahead under affine costs, in one compiled call.

        The arrays are those of `extend`; `task` is a `_level.Task`, where the selection goes. Not
        if `is_free`.

        Returns
        -------
        int
            See `_level.advance_probs`; for ``BAD_TREE`` and ``BAD_GROWTH`` nothing has been priced.
        """
        count = len(parents)
        flat, room = self.flat(probs, count - self.num_nodes), self.room(count)
        answer = _level.advance_probs(
            parents, path_probs, flat, self.discount, self.num_nodes, *room, *task
        )
        if answer <= _level.BAD_VALUE:
            raise self.fault(flat, _level.BAD_VALUE - answer)
        if answer >= 0:
            self.num_nodes = count
        return int(answer)

    def room(self, count: int) -> Room:
        """Return the pricer's memory with room for `count` nodes in all."""
        if count > len(self._values):
            self._allocate(max(count, 2 * len(self._values)))
        columns = _NO_INDPTR if self._is_whole else self._experts
        return Room(
            columns, self._factors, self._survival, self._values, self._weight_s, self._full_s,
            self._totals,
        )  # fmt: skip

    def flat(self, probs: Any, count: int) -> NDArray[np.float32]:
        """Return the probabilities of `count` new nodes as float32[count, L*E]; raise if not."""
        shape = (count, *self._shape)
        if probs is None or probs.shape != shape:
            got = None if probs is None else list(probs.shape)
            raise InvalidInputError(f"probs of the new nodes must be {list(shape)}; got {got}.")
        return np.ascontiguousarray(probs, np.float32).reshape(count, -1)

    def fault(self, flat: NDArray[np.float32], bad: int) -> InvalidInputError:
        """Return the error for the flat entry `bad` of the new nodes' probabilities."""
        where = [int(i) for i in np.unravel_index(bad, (len(flat), *self._shape))]
        return InvalidInputError(
            f"probs{where} = {flat.reshape(-1)[bad]}, but a probability is from 0 to 1."
        )

    def demand(self) -> Demand:
        """Return the demand of all nodes so far."""
        n = self.num_nodes
        return Demand(
            self._shape, self._experts, self._weight_s, self._factors[:n], _NO_INDPTR, _NO_COLS,
            self._values.reshape(-1), self._full_s[:n], self._totals,
        )  # fmt: skip

    def _allocate(self, capacity: int) -> None:
        kept, width = self.num_nodes, len(self._weight_s)
        self._survival = _grown(self._survival[:kept].reshape(kept, width), capacity)
        self._values = _grown(self._values[:kept].reshape(kept, width), capacity)
        self._full_s = _grown(self._full_s[:kept], capacity)
        self._factors = _grown(self._factors[:kept], capacity)


class RoutingPricer:
    """Prices *hard* predicted sets: each node needs exactly the experts it lists.

    For oracles, tests and the rule of the paper; a repeated expert counts once. One object serves
    many cycles and keeps its memory. It keeps the ids of each node and reads them when they are
    needed: `demand` all of them, `answer` those on which the answer depends.

    Attributes
    ----------
    num_nodes : int
        Nodes of this cycle that are here.
    """

    is_free = False
    """Routing is read even if no expert costs anything; compare `ProbPricer.is_free`."""

    def __init__(self) -> None:
        self.num_nodes = 0
        self._shape = (0, 0)
        self._per_token = 0
        self._memory = _routing.Memory(
            np.zeros(4, np.int64),
            np.zeros(0, np.uint8),
            np.full(0, -1, np.int32),
            np.empty(1, np.int64),
            np.empty(1),
            np.zeros(0),
            np.full(0, -1, np.int32),
            np.zeros(0, np.uint32),
            np.zeros((0, 0), np.int16),
            np.zeros(0, bool),
            np.zeros(0, np.int64),
            np.zeros(0, np.int64),
            np.zeros(0),
            np.zeros(0),
            np.zeros(1, np.int32),
            np.zeros(1, np.int32),
        )
        self._ones = np.ones(1, np.float32)

    def start(
        self, weight_s: NDArray[np.float64], is_priced: NDArray[np.bool_] | None = None
    ) -> None:
        """Begin a cycle; see `ProbPricer.start`. The arrays are read when the first nodes come."""
        shape = weight_s.shape
        if shape != self._shape:
            self._shape = (shape[0], shape[1])
            self._per_token = 0
            self._forget(weight_s.size)
        self._expert_s = _read_only(weight_s, _FLOAT64)
        self._is_priced = _NO_MASK if is_priced is None else _read_only(is_priced, _BOOL)
        self.num_nodes = self._num_in_order = 0

    def extend(
        self,
        parents: NDArray[np.int32],
        path_probs: NDArray[np.float64],
        routing: NDArray[np.integer[Any]],
    ) -> None:
        """Take the nodes that are new since the last call.

        Parameters
        ----------
        parents, path_probs : int32[N], float64[N]
            Of the whole tree so far.
        routing : integer[n, L, K]
            Expert ids of the n new nodes only.
        """
        check_tree(np.array(parents, np.int32), np.array(path_probs, np.float64))
        narrow = self._narrow(routing, len(parents))
        bad = _routing.take_routing(narrow, self.num_nodes, self._shape[1], self._memory)
        if bad >= 0:
            raise self._fault(bad, routing)
        if self.num_nodes == 0:
            _routing.begin(self._expert_s, self._is_priced, self._memory)
        self.num_nodes, self._parents = len(parents), np.array(parents, np.int32)

    def answer(
        self,
        parents: NDArray[np.int32],
        path_probs: NDArray[np.float64],
        routing: NDArray[np.integer[Any]],
        task: tuple[Any, ...],
    ) -> int:
        """See `ProbPricer.answer`."""
        narrow = self._narrow(routing, len(parents))
        answer = _level.advance_routing(
            parents, path_probs, narrow, self.num_nodes, self._shape[1], self._expert_s,
            self._is_priced, self._ones, *self._memory, *task,
        )  # fmt: skip
        if answer <= _level.BAD_VALUE:
            raise self._fault(_level.BAD_VALUE - answer, routing)
        if answer >= 0:
            self.num_nodes, self._parents = len(parents), parents
            self._num_in_order = 0
        return int(answer)

    def demand(self) -> Demand:
        """Return the demand of all nodes so far."""
        n, memory = self.num_nodes, self._memory
        if n and not self._num_in_order:
            _routing.begin_anew(n, self._expert_s, self._is_priced, memory)
        if n > self._num_in_order:
            _routing.read_all(n, self._parents, self._expert_s, memory)
        self._num_in_order = n
        columns, entries = (int(number) if n else 0 for number in memory.state[:2])
        indptr = np.zeros(n + 1, np.int64)
        indptr[1:] = memory.ends[:n]
        return Demand(
            self._shape, memory.expert_of[:columns], memory.weight_s[:columns], self._ones[:n],
            indptr, memory.cols[: max(1, entries)], self._ones[: max(1, entries)],
            memory.full_s[:n], memory.totals[:columns],
        )  # fmt: skip

    def _narrow(self, routing: NDArray[np.integer[Any]], count: int) -> NDArray[np.int16]:
        """Return the ids of the new nodes, up to `count` in all, as the kernels take them.

        There is room for them then. An id that int16 cannot hold becomes -1. A wrong shape raises.
        """
        shape, new = routing.shape, count - self.num_nodes
        if len(shape) != 3 or shape[0] != new or shape[1] != self._shape[0]:
            raise InvalidInputError(
                f"routing of the new nodes must be [{new}, {self._shape[0]}, K]; got {list(shape)}."
            )
        if shape[2] != self._per_token:
            self._widen(shape[2])
        if count > len(self._memory.is_read):
            self._grow(count)
        if routing.dtype != _INT16:
            routing = np.where(routing == routing.astype(np.int16), routing, -1)
        else:
            if routing.flags.carray:
                return routing  # type: ignore[return-value] # it is int16
        return np.array(routing, np.int16)

    def _forget(self, num_experts: int) -> None:
        """Make room for that many experts in all; nothing is known of any."""
        self._memory = self._memory._replace(
            state=np.zeros(4, np.int64),
            is_left=np.zeros(num_experts, np.uint8),
            column_of=np.full(num_experts, -1, np.int32),
            expert_of=np.empty(num_experts + 1, np.int64),
            weight_s=np.empty(num_experts + 1),
            totals=np.zeros(num_experts),
            newest=np.full(num_experts, -1, np.int32),
        )

    def _widen(self, per_token: int) -> None:
        """Make the rows of ids fit that many experts a token and layer."""
        if self.num_nodes:
            raise InvalidInputError(
                f"routing must name as many experts a layer as before, {self._per_token}; "
                f"got {per_token}."
            )
        layers, experts = self._shape
        capacity = len(self._memory.is_read)
        self._per_token = per_token
        self._memory = self._memory._replace(
            offsets=np.repeat(np.arange(layers, dtype=np.uint32) * experts, per_token).astype(
                np.uint32
            ),
            ids=np.zeros((capacity, layers * per_token), np.int16),
            cols=np.zeros(capacity * layers * per_token + 1, np.int32),
            experts=np.zeros(capacity * layers * per_token + 1, np.int32),
        )
        self._ones = np.ones(max(capacity, len(self._memory.cols)), np.float32)

    def _grow(self, count: int) -> None:
        """Make room for `count` nodes or more; what is there stays."""
        old = self._memory
        size = max(count, 2 * len(old.is_read), _FIRST_CAPACITY)
        self._memory = old._replace(
            ids=_grown(old.ids, size),
            is_read=_grown(old.is_read, size),
            starts=_grown(old.starts, size),
            ends=_grown(old.ends, size),
            full_s=_grown(old.full_s, size),
            charged_s=_grown(old.charged_s, size),
            cols=_grown(old.cols, size * len(old.offsets) + 1),
            experts=_grown(old.experts, size * len(old.offsets) + 1),
        )
        self._ones = np.ones(max(size, len(self._memory.cols)), np.float32)

    def _fault(self, bad: int, routing: NDArray[np.integer[Any]]) -> InvalidInputError:
        """Return the error for the flat entry `bad` of the new nodes, which is no expert id."""
        where = [int(i) for i in np.unravel_index(bad, routing.shape)]
        return InvalidInputError(
            f"routing{where} = {routing[tuple(where)]}, "
            f"but expert ids are 0 to {self._shape[1] - 1}."
        )


def _read_only(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a flat array that kernels, which are compiled for it, cannot write."""
    flat: NDArray[Any] = np.ascontiguousarray(array, dtype).reshape(-1)
    if flat.flags.writeable:
        flat = flat.view()
        flat.flags.writeable = False
    return flat


def _grown(array: NDArray[Any], length: int) -> NDArray[Any]:
    """Return an array of `length` rows that starts with the rows of `array`."""
    longer = np.zeros((length, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer
