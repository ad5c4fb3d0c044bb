"""Checks, doubles and Hypothesis strategies for authors of plug-ins.

The strategies, in `specfit.testing.strategies`, need Hypothesis; nothing else here does.
"""

from specfit.testing.acceptance_contract import AcceptanceContract, check_acceptance
from specfit.testing.backend_contract import BackendContract, check_backend
from specfit.testing.cache_contract import ExpertCacheContract, check_cache
from specfit.testing.cost_contract import CostModelContract, check_cost_model
from specfit.testing.device_contract import DeviceContract, check_device
from specfit.testing.examples import example_cycle, example_geometry, example_profile, make_cycle
from specfit.testing.policy_contract import PolicyContract, check_policy
from specfit.testing.predictor_contract import CoveragePredictorContract, check_predictor
from specfit.testing.prefetch_contract import PrefetcherContract, check_prefetcher
from specfit.testing.random_policy import RandomPolicy
from specfit.testing.simulator_contract import SimulatorContract, check_simulator
from specfit.testing.toy import ToyBackend, ToyModel, toy_backend
from specfit.testing.trace_contract import (
    RecordedCycle,
    TraceContract,
    TraceStore,
    check_trace_store,
)

__all__ = [
    "AcceptanceContract",
    "BackendContract",
    "CostModelContract",
    "CoveragePredictorContract",
    "DeviceContract",
    "ExpertCacheContract",
    "PolicyContract",
    "PrefetcherContract",
    "RandomPolicy",
    "RecordedCycle",
    "SimulatorContract",
    "ToyBackend",
    "ToyModel",
    "TraceContract",
    "TraceStore",
    "check_acceptance",
    "check_backend",
    "check_cache",
    "check_cost_model",
    "check_device",
    "check_policy",
    "check_predictor",
    "check_prefetcher",
    "check_simulator",
    "check_trace_store",
    "example_cycle",
    "example_geometry",
    "example_profile",
    "make_cycle",
    "toy_backend",
]
