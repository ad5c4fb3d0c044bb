"""Shipped policies, one method a file; importing this package registers them all."""

from specfit.policies.adaedl import AdaEDL
from specfit.policies.autoregressive import Autoregressive
from specfit.policies.cascade import Cascade
from specfit.policies.chain import Chain
from specfit.policies.ddd import Ddd
from specfit.policies.draftexpert import DraftExpert
from specfit.policies.dyspec import DySpec
from specfit.policies.eagle3 import Eagle3
from specfit.policies.ecospec import EcoSpec
from specfit.policies.evict import Evict
from specfit.policies.moe_speq import MoESpeQ
from specfit.policies.opt_tree import OptTree
from specfit.policies.references import ReferenceExperts, ReferenceTruth
from specfit.policies.s2_moe import S2MoE, S2MoEStatic
from specfit.policies.sequoia import Sequoia
from specfit.policies.specexec import SpecExec
from specfit.policies.specfit import SpecFit
from specfit.policies.svip import Svip
from specfit.policies.talon import Talon
from specfit.policies.yggdrasil import Yggdrasil

__all__ = [
    "AdaEDL",
    "Autoregressive",
    "Cascade",
    "Chain",
    "Ddd",
    "DraftExpert",
    "DySpec",
    "Eagle3",
    "EcoSpec",
    "Evict",
    "MoESpeQ",
    "OptTree",
    "ReferenceExperts",
    "ReferenceTruth",
    "S2MoE",
    "S2MoEStatic",
    "Sequoia",
    "SpecExec",
    "SpecFit",
    "Svip",
    "Talon",
    "Yggdrasil",
]
