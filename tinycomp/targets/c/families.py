"""The lowering rules of the C target by operator; the file of a family is imported when one of its rules is needed."""

from __future__ import annotations

from types import MappingProxyType

from tinycomp.lazy import LazyTable
from tinycomp.ops.record import heads
from tinycomp.targets.c.codegen.rules import LoweringRule

FAMILIES = MappingProxyType({
    "ops.attention": "tinycomp.composite::c.attention tinycomp.composite::c.grouped_attention",
    "ops.cached_attention": "Attention com.microsoft::GroupQueryAttention",
    "ops.classical": "Det tinycomp.ml::Distances tinycomp.ml::PairwiseCoupling",
    "ops.control_flow": "If Loop",
    "ops.conv": "Col2Im Conv ConvTranspose",
    "ops.detection": "NonMaxSuppression",
    "ops.elementwise": """
        Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike
        Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish IsInf
        IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu
        Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor
    """,
    "ops.indexing": """
        Gather GatherElements GatherND NonZero ReverseSequence Scatter ScatterElements ScatterND TensorScatter
        tinycomp::GroupSlices
    """,
    "ops.matmul": "Gemm MatMul",
    "ops.movement": """
        BitCast Concat ConstantOfShape DepthToSpace Expand EyeLike Flatten Identity Pad Range Reshape Shape Size Slice
        SpaceToDepth Split Squeeze Tile Transpose Trilu Unsqueeze tinycomp::Elements tinycomp::Relayout tinycomp::Sizes
    """,
    "ops.ngrams": "TfIdfVectorizer",
    "ops.norm": """
        BatchNormalization GroupNormalization InstanceNormalization LayerNormalization RMSNormalization
        tinycomp.composite::c.norm_of_sum tinycomp.composite::c.rms_norm
    """,
    "ops.pool": "AveragePool GlobalAveragePool GlobalMaxPool LRN MaxPool tinycomp::MaxPoolIndices",
    "ops.random": "Dropout RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    "ops.recurrent": "GRU LSTM RNN",
    "ops.reduction": """
        ArgMax ArgMin CumProd CumSum Hardmax LogSoftmax OneHot ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax
        ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Softmax TopK
    """,
    "ops.resize": "Resize Upsample",
    "ops.rotary": "RotaryEmbedding com.microsoft::RotaryEmbedding tinycomp.composite::c.rotary",
    "ops.sampling": "GridSample RoiAlign tinycomp::SampleCells",
    "ops.texts": """
        RegexFullMatch StringConcat StringNormalizer StringSplit ai.onnx.ml::LabelEncoder com.microsoft::Tokenizer
    """,
    "ops.trees": "ai.onnx.ml::TreeEnsemble ai.onnx.ml::TreeEnsembleClassifier ai.onnx.ml::TreeEnsembleRegressor",
    "quantized.block_products": "com.microsoft::MatMulNBits tinycomp.composite::c.blocks_dense",
    "quantized.conversion": "DequantizeLinear QuantizeLinear",
    "quantized.elements": "tinycomp.composite::c.qbinary tinycomp.composite::c.qtable",
    "quantized.fixed_point": "tinycomp.composite::c.qresize tinycomp.composite::c.qsoftmax",
    "quantized.operators": "ConvInteger MatMulInteger QLinearMatMul",
    "quantized.products": """
        tinycomp.composite::c.qavgpool tinycomp.composite::c.qconv tinycomp.composite::c.qconv_real
        tinycomp.composite::c.qconv_scaled tinycomp.composite::c.qdense tinycomp.composite::c.qdense_real
        tinycomp.composite::c.qdense_scaled
    """,
    "quantized.run_time_products": "tinycomp.composite::c.qmatmul tinycomp.composite::c.qmatmul_real",
    "quantized.weights": "tinycomp.composite::c.wdense",
})  # fmt: skip
"""By the module, whose ``FAMILY`` holds lowering rules, all operators that these are for, with the domain where it is
not ONNX's own."""
TABLE = LazyTable[tuple[str, str], LoweringRule](
    __package__, {family: heads(ops) for family, ops in FAMILIES.items()}, lambda module: module.FAMILY.by_op
)
"""The rules of all operators by domain and name."""
