/* Every kernel, included once per instruction set after its SIMD vocabulary. */
#include "gemm/gemm_f32.h"
#include "gemm/gemm_half_f32.h"
#include "gemm/gemm_bf16_f32.h"
#include "gemm/matmul_f32.h"
#include "gemm/matmul.h"

#include "conv/conv2d_f32.h"
#include "conv/conv2d_winograd_f32.h"
#include "conv/conv2d_bf16_f32.h"
#include "conv/conv2d_winograd_bf16_f32.h"

#include "dwconv/dwconv2d_f32.h"

#include "copy/copy.h"
#include "copy/fill.h"
#include "copy/pad.h"
#include "copy/col2im_f32.h"
#include "copy/sizes.h"
#include "copy/range.h"

#include "elementwise/elementwise.h"

#include "pool/pool2d_f32.h"
#include "pool/max_pool_indices.h"

#include "reduce/reduce_f32.h"
#include "reduce/reduce.h"
#include "reduce/softmax_f32.h"
#include "reduce/cumulate.h"

#include "norm/layer_norm_f32.h"
#include "norm/group_norm_f32.h"
#include "norm/lrn_f32.h"

#include "gather/gather.h"
#include "gather/gather_elements.h"
#include "gather/gather_nd.h"
#include "gather/reverse_sequence.h"

#include "scatter/scatter_elements.h"
#include "scatter/scatter_nd.h"
#include "scatter/tensor_scatter.h"

#include "select/arg_reduce.h"
#include "select/top_k.h"
#include "select/one_hot.h"
#include "select/nms_f32.h"
#include "select/nonzero.h"
#include "select/coordinates.h"
#include "select/group_slices.h"

#include "trees/tree_ensemble_f32.h"
#include "trees/tree_ensemble_f64.h"
#include "trees/class_scores_f32.h"

#include "classical/distances_f32.h"
#include "classical/distances_f64.h"
#include "classical/pairwise_coupling_f32.h"
#include "classical/det.h"
#include "classical/inverse.h"

#include "quant/quantize_f32.h"

#include "quant8/qgemm.h"
#include "quant8/qconv2d.h"
#include "quant8/qconv2d_winograd.h"
#include "quant8/qdwconv2d.h"
#include "quant8/qmatmul.h"
#include "quant8/gemm_dequant_f32.h"
#include "quant8/quantize_blocks_f32.h"
#include "quant8/gemm_blocks_f32.h"
#include "quant8/qlookup.h"
#include "quant8/qbinary.h"
#include "quant8/qmaxpool2d.h"
#include "quant8/qresize2d.h"
#include "quant8/qsoftmax.h"

#include "resize/resize2d_f32.h"
#include "resize/resize_scales.h"
#include "resize/resize_taps.h"

#include "sample/grid_sample_f32.h"
#include "sample/roi_align_f32.h"

#include "conv_transpose/conv_transpose2d_f32.h"

#include "attention/attention_f32.h"
#include "attention/rotary_f32.h"
#include "attention/cache_append_f32.h"
#include "attention/cached_attention_f32.h"
#include "attention/attention_combine_f32.h"

#include "recurrent/recurrent_f32.h"
#include "recurrent/recurrent_pack_f32.h"

#include "random/random_key.h"
#include "random/random.h"
#include "random/dropout.h"

#include "text/count_ngrams.h"
#include "text/text_concat.h"
#include "text/text_equal.h"
#include "text/text_lookup.h"
#include "text/text_match.h"
#include "text/text_normalize.h"
#include "text/text_rows.h"
#include "text/text_split.h"
