"""The operators of every family file, by which a family is imported when one of them is asked for."""

from __future__ import annotations

from types import MappingProxyType

FAMILIES = MappingProxyType({
    "activation": """
        Celu Elu Gelu HardSigmoid HardSwish Hardmax LeakyRelu LogSoftmax Mish PRelu Relu Selu Shrink Sigmoid Softmax
        Softplus Softsign SwiGLU Swish ThresholdedRelu
    """,
    "attention": "Attention RotaryEmbedding ai.onnx.preview::FlexAttention",
    "cast": "BitCast Cast CastLike",
    "control_flow": "If Loop Scan SequenceMap",
    "conv": "Col2Im Conv ConvInteger ConvTranspose DeformConv QLinearConv",
    "creation": """
        Bernoulli Constant ConstantOfShape EyeLike Multinomial RandomNormal RandomNormalLike RandomUniform
        RandomUniformLike Range
    """,
    "detection": "MaxRoiPool NonMaxSuppression RoiAlign",
    "distance": "tinycomp.ml::Distances",
    "elementwise": """
        Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Clip Cos
        Cosh Div Equal Erf Exp Floor Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Log Max Mean Min Mod Mul Neg
        Not Or Pow Reciprocal Round Sign Sin Sinh Sqrt Sub Sum Tan Tanh Where Xor
    """,
    "fourier": "STFT",
    "grouped_attention": "com.microsoft::GroupQueryAttention",
    "indexing": """
        Compress Gather GatherElements GatherND NonZero OneHot Scatter ScatterElements ScatterND TensorScatter Unique
        tinycomp::GroupSlices
    """,
    "internal": "tinycomp::Elements tinycomp::Relayout tinycomp::StopFusion",
    "loss": "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
    "maps": """
        ai.onnx.ml::CastMap ai.onnx.ml::CategoryMapper ai.onnx.ml::DictVectorizer ai.onnx.ml::LabelEncoder
        ai.onnx.ml::OneHotEncoder ai.onnx.ml::ZipMap
    """,
    "matmul": "Det Einsum Gemm MatMul",
    "movement": "Concat DepthToSpace Expand Pad ReverseSequence Slice SpaceToDepth Split Tile Transpose Trilu",
    "norm": """
        BatchNormalization GroupNormalization InstanceNormalization LayerNormalization LpNormalization
        MeanVarianceNormalization RMSNormalization
    """,
    "pool": """
        AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LRN LpPool MaxPool MaxUnpool tinycomp::MaxPoolIndices
    """,
    "quantize": "DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearMatMul QuantizeLinear",
    "recurrent": "GRU LSTM RNN",
    "reduction": """
        ArgMax ArgMin CumProd CumSum ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
        ReduceProd ReduceSum ReduceSumSquare TopK
    """,
    "resize": "Resize Upsample",
    "sampling": "AffineGrid GridSample tinycomp::SampleCells",
    "sequence": """
        ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty
        SequenceErase SequenceInsert SequenceLength SplitToSequence
    """,
    "shape": "Dropout Flatten Identity Reshape Shape Size Squeeze Unsqueeze",
    "svm": "ai.onnx.ml::SVMClassifier tinycomp.ml::PairwiseCoupling",
    "text": "RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer com.microsoft::Tokenizer",
    "trees": "ai.onnx.ml::TreeEnsemble ai.onnx.ml::TreeEnsembleClassifier ai.onnx.ml::TreeEnsembleRegressor",
})  # fmt: skip
"""By the name of the file all operators that its ``FAMILY`` speaks of, with the domain where it is not ONNX's own."""
