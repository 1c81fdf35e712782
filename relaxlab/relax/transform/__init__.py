"""Passes over Relax programs, one to a file.

Counterpart: ``tvm.relax.transform``. A pass is called on a module and returns another one, or the
same when there was nothing to do.

Examples
--------
>>> from relaxlab.ir import IRModule
>>> mod = IRModule()
>>> ToNonDataflow()(mod) is mod
True
"""

from relaxlab.ir.transform import ModulePass, Pass, PassContext, PassInfo, Sequential, module_pass
from relaxlab.relax.transform.adjust_matmul_order import AdjustMatmulOrder
from relaxlab.relax.transform.allocate_workspace import AllocateWorkspace
from relaxlab.relax.transform.annotate_tir_op_pattern import AnnotateTIROpPattern
from relaxlab.relax.transform.attach_attr_layout_free_buffers import AttachAttrLayoutFreeBuffers
from relaxlab.relax.transform.attach_global_symbol import AttachGlobalSymbol
from relaxlab.relax.transform.bind_params import BindParams
from relaxlab.relax.transform.bind_symbolic_vars import BindSymbolicVars
from relaxlab.relax.transform.bundle_model_params import BundleModelParams
from relaxlab.relax.transform.call_tir_rewrite import CallTIRRewrite
from relaxlab.relax.transform.canonicalize_bindings import (
    CanonicalizeBindings,
    CanonicalizeRelaxBindings,
    CanonicalizeTIRVariables,
)
from relaxlab.relax.transform.combine_parallel_matmul import CombineParallelMatmul
from relaxlab.relax.transform.compute_prim_value import ComputePrimValue
from relaxlab.relax.transform.convert_dataflow import ConvertToDataflow
from relaxlab.relax.transform.dataflow_inplace import DataflowUseInplaceCalls
from relaxlab.relax.transform.dead_code_elimination import DeadCodeElimination
from relaxlab.relax.transform.decompose_ops import DecomposeOpsForInference, DecomposeOpsForTraining
from relaxlab.relax.transform.eliminate_common_subexpr import EliminateCommonSubexpr
from relaxlab.relax.transform.expand_matmul_of_sum import ExpandMatmulOfSum
from relaxlab.relax.transform.expand_tuple_arguments import ExpandTupleArguments
from relaxlab.relax.transform.fast_math import FastMathTransform
from relaxlab.relax.transform.fold_constant import FoldConstant
from relaxlab.relax.transform.fuse_ops import FuseOps
from relaxlab.relax.transform.fuse_ops_by_pattern import (
    FuseOpsByPattern,
    FusionPattern,
    PatternCheckContext,
)
from relaxlab.relax.transform.fuse_tir import FuseTIR
from relaxlab.relax.transform.fuse_transpose_matmul import FuseTransposeMatmul
from relaxlab.relax.transform.inline_private_functions import InlinePrivateFunctions
from relaxlab.relax.transform.ipc_allreduce_rewrite import IPCAllReduceRewrite
from relaxlab.relax.transform.kill_after_last_use import KillAfterLastUse
from relaxlab.relax.transform.lambda_lift import LambdaLift
from relaxlab.relax.transform.lazy_transform_params import LazyGetInput, LazySetOutput
from relaxlab.relax.transform.legalize_ops import LegalizeOps
from relaxlab.relax.transform.lift_transform_params import LiftTransformParams
from relaxlab.relax.transform.lower_alloc_tensor import LowerAllocTensor
from relaxlab.relax.transform.lower_gpu_ipc_alloc_storage import LowerGPUIPCAllocStorage
from relaxlab.relax.transform.lower_runtime_builtin import LowerRuntimeBuiltin, VMBuiltinLower
from relaxlab.relax.transform.merge_composite_functions import MergeCompositeFunctions
from relaxlab.relax.transform.normalize import Normalize
from relaxlab.relax.transform.normalize_global_var import NormalizeGlobalVar
from relaxlab.relax.transform.pass_base import (
    DataflowBlockPass,
    FunctionPass,
    dataflowblock_pass,
    function_pass,
)
from relaxlab.relax.transform.remove_purity_checking import RemovePurityChecking
from relaxlab.relax.transform.remove_redundant_reshape import RemoveRedundantReshape
from relaxlab.relax.transform.remove_unused_outputs import RemoveUnusedOutputs
from relaxlab.relax.transform.remove_unused_parameters import RemoveUnusedParameters
from relaxlab.relax.transform.reorder_permute_dims_after_concat import ReorderPermuteDimsAfterConcat
from relaxlab.relax.transform.reorder_take_after_matmul import ReorderTakeAfterMatmul
from relaxlab.relax.transform.rewrite_cuda_graph import RewriteCUDAGraph
from relaxlab.relax.transform.rewrite_dataflow_reshape import RewriteDataflowReshape
from relaxlab.relax.transform.static_plan_block_memory import StaticPlanBlockMemory
from relaxlab.relax.transform.to_mixed_precision import ToMixedPrecision
from relaxlab.relax.transform.to_non_dataflow import ToNonDataflow
from relaxlab.relax.transform.topological_sort import TopologicalSort
from relaxlab.relax.transform.update_param_type import UpdateParamType
from relaxlab.relax.transform.vm_shape_lower import VMShapeLower

__all__ = [
    "AdjustMatmulOrder",
    "AllocateWorkspace",
    "AnnotateTIROpPattern",
    "AttachAttrLayoutFreeBuffers",
    "AttachGlobalSymbol",
    "BindParams",
    "BindSymbolicVars",
    "BundleModelParams",
    "CallTIRRewrite",
    "CanonicalizeBindings",
    "CanonicalizeRelaxBindings",
    "CanonicalizeTIRVariables",
    "CombineParallelMatmul",
    "ComputePrimValue",
    "ConvertToDataflow",
    "DataflowBlockPass",
    "DataflowUseInplaceCalls",
    "DeadCodeElimination",
    "DecomposeOpsForInference",
    "DecomposeOpsForTraining",
    "EliminateCommonSubexpr",
    "ExpandMatmulOfSum",
    "ExpandTupleArguments",
    "FastMathTransform",
    "FoldConstant",
    "FunctionPass",
    "FuseOps",
    "FuseOpsByPattern",
    "FuseTIR",
    "FuseTransposeMatmul",
    "FusionPattern",
    "IPCAllReduceRewrite",
    "InlinePrivateFunctions",
    "KillAfterLastUse",
    "LambdaLift",
    "LazyGetInput",
    "LazySetOutput",
    "LegalizeOps",
    "LiftTransformParams",
    "LowerAllocTensor",
    "LowerGPUIPCAllocStorage",
    "LowerRuntimeBuiltin",
    "MergeCompositeFunctions",
    "ModulePass",
    "Normalize",
    "NormalizeGlobalVar",
    "Pass",
    "PassContext",
    "PassInfo",
    "PatternCheckContext",
    "RemovePurityChecking",
    "RemoveRedundantReshape",
    "RemoveUnusedOutputs",
    "RemoveUnusedParameters",
    "ReorderPermuteDimsAfterConcat",
    "ReorderTakeAfterMatmul",
    "RewriteCUDAGraph",
    "RewriteDataflowReshape",
    "Sequential",
    "StaticPlanBlockMemory",
    "ToMixedPrecision",
    "ToNonDataflow",
    "TopologicalSort",
    "UpdateParamType",
    "VMBuiltinLower",
    "VMShapeLower",
    "dataflowblock_pass",
    "function_pass",
    "module_pass",
]
