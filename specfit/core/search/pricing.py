"""Pricers: turn predicted routing into demand, new nodes only, level by level."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.core.search import _level, _memory, _pricing, _routing
from specfit.core.search.demand import Demand
from specfit.core.search.problem import as_parents, check_tree

_NO_INDPTR = np.zeros(0, np.int64)
_NO_COLS = np.zeros(0, np.int32)
_FIRST_CAPACITY = 64
_INT16, _FLOAT64 = np.dtype(np.int16), np.dtype(np.float64)


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
        Part of a node's demand that is forgiven where the node is sure to be accepted, 0 to 1: what
        the text itself needs is paid in this cycle or in the next. Node v is charged
        ``1 - discount * P(v)`` of its demand, the root, which is sure, ``1 - discount``. May be
        changed between cycles.

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
        self,
        weight_s: NDArray[np.float64],
        is_priced: NDArray[np.bool_] | None = None,
        layers: NDArray[np.bool_] | None = None,
    ) -> None:
        """Begin a cycle with the weights float64[L, E], seconds.

        Only the experts in `is_priced`, bool[L, E], are looked at; without it those of weight above
        0. With `layers`, bool[L], predictions come for these layers alone, and the weights of the
        others do not count.
        """
        self._shape = (weight_s.shape[0], weight_s.shape[1])
        flat = np.array(weight_s, np.float64).reshape(-1)
        known = _experts_in(self._shape, None if layers is None else layers.tobytes())
        self._known_shape = (len(known) // self._shape[1], self._shape[1])
        columns = np.flatnonzero((flat if is_priced is None else is_priced.reshape(-1))[known])
        self._is_whole = 2 * len(columns) > len(known)
        self._columns = _NO_INDPTR if self._is_whole else columns
        self._experts = known if self._is_whole else known[columns]
        self._weight_s = flat[self._experts]
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
        probs : float32[n, l, E]
            Routing probabilities of the n new nodes only, in the l layers that `start` named or in
            all L; not read, and may be None, if `is_free`.
        """
        tree = as_parents(parents), np.array(path_probs, np.float64)
        check_tree(*tree)
        first, count = self.num_nodes, len(parents)
        room = self.room(count)
        if self.is_free:
            room.factors[first:count] = 1.0
            room.full_s[first:count] = 0.0
            self.num_nodes = count
            return
        flat = self.flat(probs, count - first)
        bad = _pricing.price_probs(flat, *tree, self.discount, first, *room)
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
        return Room(
            self._columns, self._factors, self._survival, self._values, self._weight_s,
            self._full_s, self._totals,
        )  # fmt: skip

    def flat(self, probs: Any, count: int) -> NDArray[np.float32]:
        """Return the probabilities of `count` new nodes as float32[count, l*E]; raise if not."""
        shape = (count, *self._known_shape)
        if probs is None or probs.shape != shape:
            got = None if probs is None else list(probs.shape)
            raise InvalidInputError(f"probs of the new nodes must be {list(shape)}; got {got}.")
        layers, experts = self._known_shape
        return np.ascontiguousarray(probs, np.float32).reshape(count, layers * experts)

    def fault(self, flat: NDArray[np.float32], bad: int) -> InvalidInputError:
        """Return the error for the flat entry `bad` of the new nodes' probabilities."""
        where = [int(i) for i in np.unravel_index(bad, (len(flat), *self._known_shape))]
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
        self._remember((0, 0), 0)

    def start(
        self,
        weight_s: NDArray[np.float64],
        is_priced: NDArray[np.bool_] | None = None,
        layers: NDArray[np.bool_] | None = None,
    ) -> None:
        """Begin a cycle; see `ProbPricer.start`. The arrays are read when the first nodes come.

        Routing is that of all layers: `layers` must not be given.
        """
        if layers is not None:
            raise InvalidInputError("hard sets are those of all layers; layers must be None.")
        shape = weight_s.shape
        if shape != self._shape:
            self._remember((shape[0], shape[1]), 0)
        self._weight_s = read_only(weight_s)
        self._is_priced = is_priced
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
        tree = as_parents(parents), np.array(path_probs, np.float64)
        check_tree(*tree)
        narrow = self._narrow(routing, len(parents))
        bad = _routing.take_routing(narrow, self.num_nodes, self._shape[1], self._memory)
        if bad >= 0:
            raise self._fault(bad, routing)
        if self.num_nodes == 0:
            self._begin()
        self.num_nodes, self._parents = len(parents), tree[0]

    def answer(
        self,
        parents: NDArray[np.int32],
        path_probs: NDArray[np.float64],
        routing: NDArray[np.integer[Any]],
        task: tuple[Any, ...],
    ) -> int:
        """See `ProbPricer.answer`. Not if the cycle began with `is_priced`."""
        count = len(parents)
        narrow = self._narrow(routing, count)
        answer = _level.advance_routing(
            parents, path_probs, narrow, self.num_nodes, self._weight_s, self._whole,
            self._capacity, *task,
        )  # fmt: skip
        if answer <= _level.BAD_VALUE:
            raise self._fault(_level.BAD_VALUE - answer, routing)
        if answer >= 0:
            self.num_nodes, self._parents, self._num_in_order = count, parents, 0
        return answer

    def demand(self) -> Demand:
        """Return the demand of all nodes so far."""
        n, memory = self.num_nodes, self._memory
        if n and not self._num_in_order:
            memory.is_read[:n] = False
            self._begin()
        if n > self._num_in_order:
            _routing.read_all(n, self._parents, self._weight_s.reshape(-1), memory)
        self._num_in_order = n
        columns, entries = (int(number) if n else 0 for number in memory.state[:2])
        indptr = np.zeros(n + 1, np.int64)
        indptr[1:] = memory.ends[:n]
        return Demand(
            self._shape, memory.expert_of[:columns], memory.weight_s[:columns],
            memory.ones[:n], indptr, memory.cols[: max(1, entries)],
            memory.ones[: max(1, entries)],
            memory.full_s[:n], memory.totals[:columns],
        )  # fmt: skip

    def _narrow(self, routing: NDArray[np.integer[Any]], count: int) -> NDArray[np.int16]:
        """Return the ids of the new nodes, up to `count` in all, as the kernels take them.

        There is room for them then. An id that int16 cannot hold becomes -1. A wrong shape raises.
        """
        shape, new = routing.shape, count - self.num_nodes
        if shape != (new, self._shape[0], self._per_token) or count > self._capacity:
            self._make_room(shape, new, count)
        if routing.dtype != _INT16:
            if routing.dtype.kind not in "iu":
                raise InvalidInputError(
                    f"routing lists expert ids, which are integers; got {routing.dtype}."
                )
            routing = np.where(routing == routing.astype(np.int16), routing, -1)
        elif routing.flags.carray:
            return routing  # type: ignore[return-value] # it is int16
        return np.array(routing, np.int16, order="C")

    def _make_room(self, shape: tuple[int, ...], new: int, count: int) -> None:
        """Make room for `new` nodes, `count` in all, whose ids have that shape; raise if not so."""
        if len(shape) != 3 or shape[:2] != (new, self._shape[0]):
            raise InvalidInputError(
                f"routing of the new nodes must be [{new}, {self._shape[0]}, K]; got {list(shape)}."
            )
        if shape[2] != self._per_token:
            if self.num_nodes:
                raise InvalidInputError(
                    f"routing must name as many experts a layer as before, {self._per_token}; "
                    f"got {shape[2]}."
                )
            self._remember(self._shape, shape[2])
        if count > self._capacity:
            old, num_before = self._memory, self._capacity
            self._allocate(max(count, 2 * num_before, _FIRST_CAPACITY))
            if num_before:
                for part, kept in zip(self._memory, old, strict=True):
                    part[: len(kept)] = kept

    def _remember(self, shape: tuple[int, int], per_token: int) -> None:
        """Begin afresh for that many layers, experts, and experts a token and layer."""
        self._shape, self._per_token = shape, per_token
        self._allocate(0)

    def _allocate(self, capacity: int) -> None:
        """Take empty memory for that many nodes."""
        layers, experts = self._shape
        self._capacity = capacity
        self._whole = _memory.new_memory(self._shape, self._per_token, capacity)
        self._memory = _memory.split(
            self._whole, layers * experts, layers * self._per_token, capacity
        )

    def _begin(self) -> None:
        """Forget all rows, and take note of who is priced."""
        if self._is_priced is None:
            _routing.begin(self._weight_s.reshape(-1), self._memory)
        else:
            _routing.begin_with(np.array(self._is_priced, bool).reshape(-1), self._memory)

    def _fault(self, bad: int, routing: NDArray[np.integer[Any]]) -> InvalidInputError:
        """Return the error for the flat entry `bad` of the new nodes, which is no expert id."""
        where = [int(i) for i in np.unravel_index(bad, routing.shape)]
        return InvalidInputError(
            f"routing{where} = {routing[tuple(where)]}, "
            f"but expert ids are 0 to {self._shape[1] - 1}."
        )


def read_only(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return an array in C order that kernels, which are compiled for it, cannot write."""
    flags = array.flags
    if array.dtype is _FLOAT64 and flags.c_contiguous and not flags.writeable:
        return array
    whole = np.ascontiguousarray(array, _FLOAT64).view()
    whole.flags.writeable = False
    return whole


@lru_cache(maxsize=8)
def _experts_in(shape: tuple[int, int], layers: bytes | None) -> NDArray[np.int64]:
    """Return the flat ids of the experts in some layers, bool[L] as bytes, or in all."""
    experts = np.arange(shape[0] * shape[1], dtype=np.int64).reshape(shape)
    chosen = experts if layers is None else experts[np.frombuffer(layers, bool)]
    return np.ravel(chosen)


def _grown(array: NDArray[Any], length: int) -> NDArray[Any]:
    """Return an array of `length` rows that starts with the rows of `array`."""
    longer = np.zeros((length, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer
