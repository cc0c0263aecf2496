"""Which file says what of which operator, so that a file is imported when one of its operators is asked for.

Written by ``.ci/index``; a test compares it with what the files register. Names outside ONNX's own domain have theirs.
"""

from __future__ import annotations

from types import MappingProxyType


def named(trait: str) -> tuple[str, ...]:
    """Return the operators of ONNX's own domain that have a trait in all their versions, without importing them."""
    return tuple([name for name in TRAITS.get(trait, "").split() if "::" not in name])


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
        Bernoulli BlackmanWindow Constant ConstantOfShape EyeLike HammingWindow HannWindow MelWeightMatrix Multinomial
        RandomNormal RandomNormalLike RandomUniform RandomUniformLike Range
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
    "internal": "tinycomp::Conditions tinycomp::Declared tinycomp::Elements tinycomp::Relayout tinycomp::StopFusion",
    "loss": "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
    "maps": """
        ai.onnx.ml::CastMap ai.onnx.ml::CategoryMapper ai.onnx.ml::DictVectorizer ai.onnx.ml::LabelEncoder
        ai.onnx.ml::OneHotEncoder ai.onnx.ml::ZipMap
    """,
    "matmul": "Det Einsum Gemm MatMul com.microsoft::Inverse",
    "movement": """
        CenterCropPad Concat DepthToSpace Expand Pad ReverseSequence Slice SpaceToDepth Split Tile Transpose Trilu
    """,
    "norm": """
        BatchNormalization GroupNormalization InstanceNormalization LayerNormalization LpNormalization
        MeanVarianceNormalization RMSNormalization
    """,
    "pool": """
        AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LRN LpPool MaxPool MaxUnpool tinycomp::MaxPoolIndices
    """,
    "quantize": "DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearMatMul QuantizeLinear",
    "recurrent": "GRU LSTM RNN tinycomp.quantized::LSTM",
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
"""What is true of operators: kernels and rules."""
DEFINITIONS = MappingProxyType({
    "convolution_definition": "Conv ConvTranspose DeformConv Gemm",
    "creation_definition": "AffineGrid CenterCropPad Compress MelWeightMatrix OneHot Range",
    "einsum_definition": "Einsum",
    "flex_attention_definition": "ai.onnx.preview::FlexAttention",
    "fourier_definition": "DFT STFT",
    "norm_definition": """
        BatchNormalization GlobalLpPool LayerNormalization LpNormalization LpPool MeanVarianceNormalization
    """,
    "quantized_definition": """
        ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul QuantizeLinear
    """,
    "random_definition": "Bernoulli Multinomial",
    "resize_definition": "Resize",
    "scan_definition": "Scan",
    "selection_definition": "MaxPool MaxUnpool Unique",
    "training_definition": """
        ai.onnx.preview.training::Adagrad ai.onnx.preview.training::Adam ai.onnx.preview.training::Momentum
    """,
})  # fmt: skip
"""Operators by others, where ONNX gives no exact function."""
EXTENSIONS = MappingProxyType({
    "machine_learning": """
        ai.onnx.ml::ArrayFeatureExtractor ai.onnx.ml::Binarizer ai.onnx.ml::FeatureVectorizer ai.onnx.ml::Imputer
        ai.onnx.ml::LabelEncoder ai.onnx.ml::LinearClassifier ai.onnx.ml::LinearRegressor ai.onnx.ml::Normalizer
        ai.onnx.ml::OneHotEncoder ai.onnx.ml::SVMClassifier ai.onnx.ml::SVMRegressor ai.onnx.ml::Scaler
        com.microsoft::CDist
    """,
    "microsoft": """
        SimplifiedLayerNormalization com.microsoft::Attention com.microsoft::BiasGelu com.microsoft::DequantizeLinear
        com.microsoft::DynamicQuantizeMatMul com.microsoft::EmbedLayerNormalization com.microsoft::FastGelu
        com.microsoft::FusedConv com.microsoft::FusedGemm com.microsoft::FusedMatMul com.microsoft::GatherBlockQuantized
        com.microsoft::Gelu com.microsoft::MatMulIntegerToFloat com.microsoft::MatMulNBits
        com.microsoft::MultiHeadAttention com.microsoft::NhwcMaxPool com.microsoft::QAttention com.microsoft::QGemm
        com.microsoft::QLinearAdd com.microsoft::QLinearAveragePool com.microsoft::QLinearConcat
        com.microsoft::QLinearConv com.microsoft::QLinearGlobalAveragePool com.microsoft::QLinearLeakyRelu
        com.microsoft::QLinearMul com.microsoft::QLinearReduceMean com.microsoft::QLinearSigmoid
        com.microsoft::QLinearSoftmax com.microsoft::QLinearWhere com.microsoft::QuantizeLinear com.microsoft::QuickGelu
        com.microsoft::RotaryEmbedding com.microsoft::SkipLayerNormalization
        com.microsoft::SkipSimplifiedLayerNormalization
    """,
    "quantized_recurrent": "com.microsoft::DynamicQuantizeLSTM",
})  # fmt: skip
"""Operators of other domains by ONNX's own."""
LOWERINGS = MappingProxyType({
    "ops.attention": "tinycomp.composite::c.attention tinycomp.composite::c.grouped_attention",
    "ops.cached_attention": "Attention com.microsoft::GroupQueryAttention",
    "ops.classical": "Det com.microsoft::Inverse tinycomp.ml::Distances tinycomp.ml::PairwiseCoupling",
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
        SpaceToDepth Split Squeeze Tile Transpose Trilu Unsqueeze tinycomp::Conditions tinycomp::Declared
        tinycomp::Elements tinycomp::Relayout tinycomp::Sizes
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
    "quantized.operators": "ConvInteger MatMulInteger",
    "quantized.products": """
        tinycomp.composite::c.qavgpool tinycomp.composite::c.qconv tinycomp.composite::c.qconv_real
        tinycomp.composite::c.qconv_scaled tinycomp.composite::c.qdense tinycomp.composite::c.qdense_real
        tinycomp.composite::c.qdense_scaled
    """,
    "quantized.recurrent": "tinycomp.quantized::LSTM",
    "quantized.run_time_products": "tinycomp.composite::c.qmatmul tinycomp.composite::c.qmatmul_real",
    "quantized.weights": "tinycomp.composite::c.wdense",
})  # fmt: skip
"""Lowering rules of the C target."""
TRAITS = MappingProxyType({
    "along_axis": """
        ArgMax ArgMin Gather Hardmax LayerNormalization LogSoftmax LpNormalization RMSNormalization Softmax Split
    """,
    "bodies": "If Loop Scan SequenceMap ai.onnx.preview::FlexAttention",
    "cheap": """
        Abs And BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Clip Constant
        ConstantOfShape DequantizeLinear Equal EyeLike Flatten Floor Greater GreaterOrEqual HardSigmoid HardSwish
        Identity IsInf IsNaN LeakyRelu Less LessOrEqual Mod Neg Not Or PRelu Reciprocal Relu Reshape Round Shape Shrink
        Sign Size Softsign Sqrt Squeeze ThresholdedRelu Unsqueeze Where Xor tinycomp::StopFusion
    """,
    "checked": "Loop Resize Upsample com.microsoft::GroupQueryAttention",
    "clamp": "Clip Relu",
    "commutative": "BitwiseAnd BitwiseOr BitwiseXor Max Mean Min Sum",
    "control_flow": "If Loop Scan SequenceMap",
    "elementwise": """
        Abs Acos Acosh Add And Asin Asinh Atan Atanh BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast
        CastLike Ceil Celu Clip Cos Cosh Div Dropout Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid
        HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow
        Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum SwiGLU Swish Tan Tanh
        ThresholdedRelu Where Xor tinycomp::StopFusion
    """,
    "function": "Celu Clip Elu Gelu HardSigmoid HardSwish LeakyRelu Mish Relu Selu Sigmoid Softplus Swish Tanh",
    "handle": """
        Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty SequenceErase
        SequenceInsert SequenceLength
    """,
    "inexact_definition": "GroupNormalization LayerNormalization MeanVarianceNormalization ReduceLogSumExp Softplus",
    "integer_product": "ConvInteger MatMulInteger QLinearConv QLinearMatMul",
    "mean": "AveragePool GlobalAveragePool ReduceMean",
    "measure": "Shape Size",
    "movement": """
        CenterCropPad Concat DepthToSpace Dropout Expand Flatten Gather GatherElements GatherND Identity Pad Reshape
        ReverseSequence Scatter ScatterElements ScatterND Slice SpaceToDepth Split Squeeze TensorScatter Tile Transpose
        Trilu Unsqueeze tinycomp::Relayout
    """,
    "output_count": """
        Attention BatchNormalization Dropout GRU LSTM LayerNormalization Loop MaxPool RNN Scan SequenceMap Split
        com.microsoft::GroupQueryAttention
    """,
    "per_image": """
        AveragePool BatchNormalization Conv ConvTranspose DepthToSpace GlobalAveragePool GlobalLpPool GlobalMaxPool
        GroupNormalization InstanceNormalization LRN LpPool MaxPool SpaceToDepth
    """,
    "pool": "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool",
    "product": "Conv Gemm MatMul",
    "quantization": "DequantizeLinear DynamicQuantizeLinear QuantizeLinear",
    "random": "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    "reduction": """
        ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
        ReduceSumSquare
    """,
    "selection": """
        DepthToSpace Expand Flatten Gather GatherElements GatherND Identity Reshape ReverseSequence Slice SpaceToDepth
        Split Squeeze Tile Transpose Unsqueeze
    """,
    "silent": "Gather LpNormalization ai.onnx.ml::ZipMap tinycomp::Conditions tinycomp::Declared",
    "stacking": "Loop Scan",
    "strided": "ConstantOfShape Expand Identity Slice Split Squeeze Transpose Unsqueeze",
    "structural": "Dropout Identity tinycomp::StopFusion",
    "view": "Flatten Reshape Squeeze Unsqueeze",
    "window": "AveragePool Conv ConvInteger LpPool MaxPool QLinearConv",
})  # fmt: skip
"""Operators by what is true of all their versions: tinycomp.ops.record.TRAITS."""
