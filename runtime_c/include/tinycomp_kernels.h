/* tinycomp: the parameters of every kernel of the C runtime. The struct of kernel <name> is tc_<name>_params; sizes and
 * strides are in elements, tensors row-major and images NHWC unless stated. */
#ifndef TINYCOMP_KERNELS_H
#define TINYCOMP_KERNELS_H

#include <stdint.h>

#include "tinycomp_elements.h"

/* cdef-begin: as in tinycomp.h. */

/* Which loop is inside the other. */
enum tc_panel_order {
  TC_ORDER_AUTO = 0,
  TC_ORDER_PANELS_INNER = 1, /* all panels of a block of rows, then the next block */
  TC_ORDER_PANELS_OUTER = 2  /* all blocks of rows of a panel, then the next panel */
};

/* gemm_f32: C[m,n] = activation(A[m,k] * B + bias[n] + residual[m,n]), B constant.
 * Operands: C, A, B ([k,n], or [n,k] with trans_b), bias (optional, constant), residual (optional). */
typedef struct tc_gemm_f32_params {
  int64_t m, n, k;
  int64_t lda, ldc, ldr; /* row strides of A, C and the residual */
  int64_t trans_b;       /* 0 or 1 */
  int64_t block_rows;    /* rows of a block, or 0 */
  int64_t panel_order;   /* an enum tc_panel_order */
  int64_t activation;    /* an enum tc_activation */
  float activation_a, activation_b;
} tc_gemm_f32_params;

/* gemm_half_f32: gemm_f32 with B in half precision, and with the bits that it has for B in f32; no number of B is
 * infinite or NaN. Operands as there. */
typedef struct tc_gemm_half_f32_params {
  int64_t m, n, k;
  int64_t lda, ldc, ldr; /* row strides of A, C and the residual */
  int64_t trans_b;       /* 0 or 1 */
  int64_t type;          /* of B: F16 or BF16 */
  int64_t activation;    /* an enum tc_activation */
  float activation_a, activation_b;
} tc_gemm_half_f32_params;

/* gemm_bf16_f32: gemm_f32 of factors that are rounded to bfloat16, to nearest with ties to even; products are exact and
 * are added up in f32. Numbers below the normal ones may count as 0. Operands as there. */
typedef struct tc_gemm_bf16_f32_params {
  int64_t m, n, k;
  int64_t lda, ldc, ldr; /* row strides of A, C and the residual */
  int64_t trans_b;       /* 0 or 1 */
  int64_t type;          /* of B: F32 or BF16 */
  int64_t block_rows;    /* rows of a block, or 0 */
  int64_t panel_order;   /* an enum tc_panel_order, ignored: a block is rounded once for all panels */
  int64_t activation;    /* an enum tc_activation */
  float activation_a, activation_b;
} tc_gemm_bf16_f32_params;

/* matmul_f32: C = activation(alpha * A * B + bias[n] + residual), batched over two dimensions; an operand that is the
 * same for all of a batch dimension has batch stride 0, a transposed one has its row and column strides exchanged.
 * Operands: C, A, B, bias (optional), residual (optional; row stride 0 for a row that all rows share). */
typedef struct tc_matmul_f32_params {
  int64_t batch0, batch1;
  int64_t m, n, k;
  int64_t a_batch0, a_batch1, a_row, a_column; /* strides of A[m,k] */
  int64_t b_batch0, b_batch1, b_row, b_column; /* strides of B[k,n] */
  int64_t c_batch0, c_batch1, c_row;           /* strides of C[m,n], whose columns lie side by side */
  int64_t r_batch0, r_batch1, r_row;           /* strides of the residual[m,n], likewise */
  int64_t block_rows;                          /* rows of a block, or 0 */
  float alpha;
  int64_t activation;
  float activation_a, activation_b;
} tc_matmul_f32_params;

/* matmul: C = A * B of F64, I32, U32, I64 or U64, batched over two dimensions as in matmul_f32; integers wrap around.
 * Operands: C, A, B. */
typedef struct tc_matmul_params {
  int64_t type;
  int64_t batch0, batch1;
  int64_t m, n, k;
  int64_t a_batch0, a_batch1, a_row, a_column;
  int64_t b_batch0, b_batch1, b_row, b_column;
  int64_t c_batch0, c_batch1, c_row;
} tc_matmul_params;

/* attention_f32: Y = softmax(scale * Q K^T + mask) V for every batch and head; heads in groups share keys and values.
 * With causal, query i sees keys 0 to i + past only. Elements of Q, V and Y lie side by side along their last
 * dimension; strides of the mask may be 0. A query that sees no key gives NaN. The result may not overlap an operand.
 * Operands: Y[batch, heads, rows, value_depth], Q[batch, heads, rows, depth], K[batch, heads/group, keys, depth],
 * V[batch, heads/group, keys, value_depth], mask[batch, heads, rows, keys] (optional). */
typedef struct tc_attention_f32_params {
  int64_t batch, heads, group;
  int64_t rows, keys, depth, value_depth;
  int64_t y_batch, y_head, y_row;
  int64_t q_batch, q_head, q_row;
  int64_t k_batch, k_head, k_row, k_column;
  int64_t v_batch, v_head, v_row;
  int64_t mask_batch, mask_head, mask_row, mask_column;
  int64_t causal, past;
  float scale;
} tc_attention_f32_params;

/* rotary_f32: the first `turned` features of x[batch, heads, rows, size], in pairs (i, i + turned/2), or with
 * interleaved (2 i, 2 i + 1), as complex numbers times cos + i sin; the others stay as they are. With table_half the
 * second of each pair has angles of its own, so many elements behind those of the first. Angles are those at
 * batch * table_batch + row * table_row, or where there are positions those of the row of the tables that they name:
 * positions[batch * position_batch + row], or with position_step as many after positions[batch * position_batch] as
 * there are rows before. The result may replace x.
 * Operands: y, x, cos, sin, positions (int64, optional). */
typedef struct tc_rotary_f32_params {
  int64_t batch, heads, rows, size;
  int64_t turned, interleaved;
  int64_t y_batch, y_head, y_row;
  int64_t x_batch, x_head, x_row;
  int64_t table_batch, table_row, table_half;
  int64_t table_rows; /* with positions: how many there are */
  int64_t position_batch, position_step;
} tc_rotary_f32_params;

/* cache_append_f32: new rows into a cache. Sequence b has its new rows from position start(b) on: the rows of the past
 * without lengths; else lengths[b] + length_more - rows, or 0 where `longest` equals the number of new rows. Rows of
 * the past keep their places, and others are 0. Where y and past are the same memory nothing is copied. With append 0,
 * y holds the new rows alone. The first `rotated` features are rotated by the angles of positions[b, i], or of start(b)
 * + i, in pairs of neighbours if interleaved, else of halves. Elements lie side by side along the columns. Operands:
 * y[batch, heads, capacity, columns], past[batch, heads, past_rows, columns] (optional), x[batch, heads, rows,
 * columns], lengths[batch] (optional, integers of length_bytes), longest (optional, one int32), positions[batch, rows]
 * (optional, int64), cos and sin[cache_rows, rotated/2] (optional). */
typedef struct tc_cache_append_f32_params {
  int64_t batch, heads, rows, columns, capacity, past_rows;
  int64_t y_batch, y_head, y_row;
  int64_t past_batch, past_head, past_row;
  int64_t x_batch, x_head, x_row;
  int64_t append;
  int64_t length_bytes, length_more;
  int64_t rotated, interleaved, cache_rows, position_batch;
} tc_cache_append_f32_params;

/* cached_attention_f32: attention_f32 over as many of the keys as a run says. Sequence b has lengths[b] + length_more
 * keys, and its first query stands at that less the rows, or at 0 where `longest` equals the rows; without lengths all
 * keys count and the first query stands at `past`. Of the keys, a query at position i sees those up to i if causal, and
 * those from i - left to i + right where these are not negative. Scores are softcap * tanh(scale * q k / softcap) if
 * softcap is positive; then the mask is added, or hides keys where a mask of bytes is 0; keys from mask_columns on are
 * hidden by any mask. A sink adds e^sink[head] to the sum of a softmax. A query that sees no key gives zeros.
 * Where up to 16 queries share the keys (group * rows) and there is room for more than 512 of those, what every 512
 * keys contribute goes to partial[batch, heads, rows, ceil(keys/512), value_depth + 2]: weighted values, then the
 * greatest score and the sum of exponentials. attention_combine_f32, called for the same sizes, makes y of them; it
 * does nothing for others. Operands: y[batch, heads, rows, value_depth], partial (optional), q[batch, heads, rows,
 * depth], k[batch, heads/group, keys, depth], v[batch, heads/group, keys, value_depth], mask[batch, heads, rows,
 * mask_columns] (optional), lengths (optional), longest (optional), sink[heads] (optional). */
typedef struct tc_cached_attention_f32_params {
  int64_t batch, heads, group;
  int64_t rows, keys, depth, value_depth;
  int64_t y_batch, y_head, y_row;
  int64_t q_batch, q_head, q_row;
  int64_t k_batch, k_head, k_row;
  int64_t v_batch, v_head, v_row;
  int64_t mask_batch, mask_head, mask_row, mask_column, mask_columns, mask_bytes; /* 4 for floats, or 1 */
  int64_t length_bytes, length_more;
  int64_t past, causal, left, right;
  float scale, softcap;
} tc_cached_attention_f32_params;

/* attention_combine_f32: the second half of cached_attention_f32. Operands: y, partial, sink (optional). */
typedef struct tc_attention_combine_f32_params {
  int64_t batch, heads, group;
  int64_t rows, keys, value_depth;
  int64_t y_batch, y_head, y_row;
} tc_attention_combine_f32_params;

/* How a convolution is computed. */
enum tc_conv_algorithm {
  TC_CONV_AUTO = 0,
  TC_CONV_DIRECT = 1,     /* conv2d_f32 reads its input through one pointer per kernel position, */
  TC_CONV_LINES = 2,      /* or through one per kernel line, where its values are adjacent: for few channels */
  TC_CONV_WINOGRAD_2 = 3, /* conv2d_winograd_f32 computes tiles of 2x2 output pixels, */
  TC_CONV_WINOGRAD_4 = 4, /* or of 4x4, which is its own choice */
  TC_CONV_COLUMNS = 5     /* conv2d_f32 has columns in its vectors, for few filters; direct where they do not fit */
};

/* conv2d_f32: NHWC convolution with constant weights; y = activation(conv(x, w) + bias + residual).
 * Operands: y, x, w (ONNX order: [out_channels, channels/groups, kernel_height, kernel_width]), bias (optional,
 * constant), residual (optional, shaped like y). Input positions outside the image read as zero, so that the padding at
 * the bottom and at the right follows from the output size. Pixel strides are in elements and let a tensor be a slice
 * of channels. */
typedef struct tc_conv2d_f32_params {
  int64_t batch, height, width, channels;
  int64_t out_height, out_width, out_channels;
  int64_t kernel_height, kernel_width;
  int64_t stride_height, stride_width;
  int64_t dilation_height, dilation_width;
  int64_t pad_top, pad_left;
  int64_t groups;
  int64_t x_pixel_stride, y_pixel_stride, residual_pixel_stride;
  int64_t algorithm;      /* an enum tc_conv_algorithm */
  int64_t block_rows;     /* output pixels of a block, Winograd: tiles of a block; or 0 */
  int64_t panel_order;    /* an enum tc_panel_order; Winograd: ignored */
  int64_t group_channels; /* Winograd: output channels of a unit, or 0; otherwise ignored */
  int64_t activation;
  float activation_a, activation_b;
} tc_conv2d_f32_params;

/* conv2d_winograd_f32: conv2d_f32 for 3x3 windows of stride and dilation 1 in one group. */
typedef tc_conv2d_f32_params tc_conv2d_winograd_f32_params;

/* conv2d_bf16_f32: conv2d_f32 in one group with x and w rounded as by gemm_bf16_f32; panel_order is ignored. */
typedef tc_conv2d_f32_params tc_conv2d_bf16_f32_params;

/* conv2d_winograd_bf16_f32: conv2d_winograd_f32 with tiles of 2x2, transformed patches and weights rounded likewise. */
typedef tc_conv2d_f32_params tc_conv2d_winograd_bf16_f32_params;

/* dwconv2d_f32: NHWC depthwise convolution, one filter per channel; otherwise as conv2d_f32. Planar images are
 * [batch, channels, height, width]; their stride_width is 1, and all pixel strides are the number of channels.
 * Operands: y, x, w ([channels, 1, kernel_height, kernel_width]), bias (optional, constant), residual (optional). */
typedef struct tc_dwconv2d_f32_params {
  int64_t batch, height, width, channels;
  int64_t out_height, out_width;
  int64_t kernel_height, kernel_width;
  int64_t stride_height, stride_width;
  int64_t dilation_height, dilation_width;
  int64_t pad_top, pad_left;
  int64_t x_pixel_stride, y_pixel_stride, residual_pixel_stride;
  int64_t planar; /* 0 or 1 */
  int64_t activation;
  float activation_a, activation_b;
} tc_dwconv2d_f32_params;

/* ---- copying ----
 * Kernels over several dimensions have eight of them, outermost first; those that are not needed have size 1. Strides
 * are in elements. An operand's offset is that of its lowest element, also where a stride is negative: such a dimension
 * is then read from its far end. */

/* copy: to[i0, ..., i7] = from[i0, ..., i7], for elements of 1, 2, 4 or 8 bytes. The source's strides may be 0
 * (repeated) or negative; the destination's are positive. The two may not overlap.
 * Operands: to, from. */
typedef struct tc_copy_params {
  int64_t element_size;
  int64_t size0, size1, size2, size3, size4, size5, size6, size7;
  int64_t to_stride0, to_stride1, to_stride2, to_stride3, to_stride4, to_stride5, to_stride6, to_stride7;
  int64_t from_stride0, from_stride1, from_stride2, from_stride3, from_stride4, from_stride5, from_stride6,
      from_stride7;
} tc_copy_params;

/* sizes: y[i] = value_i for the first `count` of them, as int64 or int32. Operands: y. */
typedef struct tc_sizes_params {
  int64_t type; /* I64 or I32 */
  int64_t count;
  int64_t value0, value1, value2, value3, value4, value5, value6, value7;
} tc_sizes_params;

/* range: y[i] = start + i * delta for i < count. Operands: y, start, delta; all F32, F64, I32 or I64. */
typedef struct tc_range_params {
  int64_t type, count;
} tc_range_params;

/* fill: to[i0, ..., i7] = the low bytes of the pattern, for elements of 1, 2, 4 or 8 bytes.
 * Operands: to. */
typedef struct tc_fill_params {
  int64_t element_size;
  int64_t pattern;
  int64_t size0, size1, size2, size3, size4, size5, size6, size7;
  int64_t stride0, stride1, stride2, stride3, stride4, stride5, stride6, stride7;
} tc_fill_params;

enum tc_padding {
  TC_PAD_EDGE,    /* the outermost element */
  TC_PAD_REFLECT, /* mirrored at the outermost element, periodically */
  TC_PAD_WRAP,    /* repeated periodically */
};

/* pad: x, row-major, with borders made of its own elements; negative borders cut. Operands: y, x. */
typedef struct tc_pad_params {
  int64_t element_size;
  int64_t mode; /* an enum tc_padding */
  int64_t size0, size1, size2, size3, size4, size5, size6, size7;
  int64_t before0, before1, before2, before3, before4, before5, before6, before7;
  int64_t after0, after1, after2, after3, after4, after5, after6, after7;
} tc_pad_params;

/* ---- elementwise ---- */

/* elementwise: a program of element-wise steps, run over blocks that stay in the cache. Every operand is read once and
 * every output written once. Operands: output, three more outputs (optional), the program, eleven inputs (optional).
 * Outputs are contiguous and have the shape of the program; an input has strides, 0 where it repeats.
 *
 * The program is a constant of int64 words:
 *   inputs, immediates, steps, outputs    how many there are of each
 *   size0 ... size7                       the shape
 *   type, stride0 ... stride7             for every input
 *   type, value                           for every immediate: the bits of a double for a float type, else an integer
 *   kind, op, type, x, y, z, a, b         for every step; x, y and z are numbers of inputs (from 0), immediates (that
 *                                         follow) or earlier steps (that follow); a and b are the bits of doubles
 *   step                                  for every output: the number of the step whose result it is */
typedef struct tc_elementwise_params {
  int64_t words; /* of the program */
} tc_elementwise_params;

/* ---- pooling ---- */

enum tc_pool_mode {
  TC_POOL_MAX = 0,              /* NaN if there is one in the window; -infinity for a window in the padding alone */
  TC_POOL_AVERAGE = 1,          /* over the positions inside the image */
  TC_POOL_AVERAGE_WITH_PADS = 2 /* over the positions inside the padded image: ONNX's count_include_pad */
};

/* pool2d_f32: NHWC pooling; pooling a whole image is a window of its size. Operands: y, x. */
typedef struct tc_pool2d_f32_params {
  int64_t mode; /* an enum tc_pool_mode */
  int64_t batch, height, width, channels;
  int64_t out_height, out_width;
  int64_t kernel_height, kernel_width;
  int64_t stride_height, stride_width;
  int64_t dilation_height, dilation_width;
  int64_t pad_top, pad_left, pad_bottom, pad_right; /* the last two only count positions */
  int64_t x_pixel_stride, y_pixel_stride;
} tc_pool2d_f32_params;

/* ---- reductions ---- */

enum tc_reduction {
  TC_REDUCE_SUM = 0,
  TC_REDUCE_MEAN = 1,
  TC_REDUCE_MAX = 2, /* NaN if there is one; -infinity of nothing */
  TC_REDUCE_MIN = 3,
  TC_REDUCE_PROD = 4,
  TC_REDUCE_L1 = 5,
  TC_REDUCE_L2 = 6,
  TC_REDUCE_SUM_SQUARE = 7,
  TC_REDUCE_LOG_SUM = 8,
  TC_REDUCE_LOG_SUM_EXP = 9
};

/* reduce_f32: y[outer, middle, inner] out of x[outer, axis0, middle, axis1, inner]; sizes that are not needed are 1.
 * Operands: y, x. */
typedef struct tc_reduce_f32_params {
  int64_t op; /* an enum tc_reduction */
  int64_t outer, axis0, middle, axis1, inner;
} tc_reduce_f32_params;

/* reduce: likewise, of all types but F32, F16 and BF16; of BOOL the largest or the least. Sums and products of integers
 * wrap around, means and irrational results are cut off towards 0; the maximum of nothing is the least number of the
 * type, the minimum the greatest. Operands: y, x. */
typedef struct tc_reduce_params {
  int64_t type; /* an enum tc_type */
  int64_t op;   /* an enum tc_reduction */
  int64_t outer, axis0, middle, axis1, inner;
} tc_reduce_params;

/* softmax_f32: softmax of x[outer, axis, inner] along the axis, or its logarithm. Operands: y (may be x), x. */
typedef struct tc_softmax_f32_params {
  int64_t outer, axis, inner;
  int64_t logarithm; /* 0 or 1 */
} tc_softmax_f32_params;

/* cumulate: running sums or products of x[outer, axis, inner] along the axis; exclusive ones leave an element itself
 * out, reverse ones begin at the far end. Operands: y, x. */
typedef struct tc_cumulate_params {
  int64_t type;                        /* an enum tc_type but F16, BF16 and BOOL, as in the next two */
  int64_t product, exclusive, reverse; /* 0 or 1 */
  int64_t outer, axis, inner;
} tc_cumulate_params;

/* arg_reduce: the place along the axis of the largest (or least) element of x[outer, axis, inner], of several the first
 * (or last); NaN is both largest and least. Operands: y[outer, inner] (int64), x. */
typedef struct tc_arg_reduce_params {
  int64_t type;
  int64_t least, last; /* 0 or 1 */
  int64_t outer, axis, inner;
} tc_arg_reduce_params;

/* top_k: the k largest (or smallest) elements along the axis and their places, best first or in the order of the axis;
 * of equals the first ones, and NaN last. Operands: values[outer, k, inner], indices (int64), x[outer, axis, inner]. */
typedef struct tc_top_k_params {
  int64_t type;
  int64_t largest, sorted; /* 0 or 1 */
  int64_t outer, axis, inner;
  int64_t k;
} tc_top_k_params;

/* ---- results whose size depends on data ----
 * A first kernel finds positions, each of its segments up to `room` of them; `coordinates` puts them together. */

/* nms_f32: non-maximum suppression as ONNX defines it. The boxes of each of batch * classes segments that no better one
 * of theirs overlaps by more than iou_threshold, the best first, as positions in scores[batch, classes, boxes]; of
 * equal scores the first box is the better one, and NaN is the worst score. Operands: positions (int64 [batch *
 * classes, room]), counts (int64 [batch * classes]), boxes[batch, boxes, 4], scores, the most boxes of a segment
 * (int64; optional: 0; more than `room` is `room`), iou_threshold (float in [0, 1], or the run fails; optional: 0),
 * score_threshold (float; only higher scores count; optional: all do). */
typedef struct tc_nms_f32_params {
  int64_t batch, classes, boxes;
  int64_t room;   /* at most boxes */
  int64_t center; /* 1: a box is its centre and size, 0: two opposite corners */
} tc_nms_f32_params;

/* nonzero: the positions of the elements other than zero, segment by segment of `room` elements, of which the last one
 * may be shorter; -0 is zero, NaN is not. Operands: positions (int64 [segments, room]), counts (int64 [segments]), x.
 */
typedef struct tc_nonzero_params {
  int64_t element_size; /* bytes: 1, 2, 4 or 8 */
  int64_t is_float;     /* 0 or 1: with a sign that does not count */
  int64_t elements, room;
} tc_nonzero_params;

/* coordinates: the first counts[segment] positions of every segment, one after the other, each as its `rank` indices
 * into a tensor of the innermost `rank` sizes, the others being 1. Operands: y (int64 [count, rank], with room for
 * all), count (int64 [1]), positions (int64 [segments, room]), counts (int64 [segments], from 0 to room). */
typedef struct tc_coordinates_params {
  int64_t segments, room, rank;
  int64_t size0, size1, size2, size3, size4, size5, size6, size7;
} tc_coordinates_params;

/* ---- normalisation ---- The result of each may replace x. */

/* layer_norm_f32: y = (t - mean) / sqrt(variance + epsilon) * scale[columns] + bias[columns] for every row t of
 * x + residual; with rms the mean is taken as 0. Operands: y, t (optional), x, residual (optional), scale (optional),
 * bias (optional). */
typedef struct tc_layer_norm_f32_params {
  int64_t rows, columns;
  int64_t rms; /* 0 or 1 */
  float epsilon;
} tc_layer_norm_f32_params;

/* group_norm_f32: likewise, for every image and group of channels of x[batch, pixels, channels], or, if it is planar,
 * of x[batch, channels, pixels]; instance normalisation has as many groups as channels. Operands: y, x, scale[channels]
 * (optional), bias[channels] (optional). */
typedef struct tc_group_norm_f32_params {
  int64_t batch, pixels, channels, groups;
  int64_t planar; /* 0 or 1 */
  float epsilon;
} tc_group_norm_f32_params;

/* lrn_f32: y = x / (bias + alpha / size * sum of squares)^beta, the sum being over `size` neighbouring channels, from
 * (size - 1) / 2 before. bias plus the sum must be positive. Operands: y, x[pixels, channels]. */
typedef struct tc_lrn_f32_params {
  int64_t pixels, channels;
  int64_t size;
  float alpha, beta, bias;
} tc_lrn_f32_params;

/* ---- gathering and scattering ----
 * A negative index counts from the end of its axis, one that is out of range makes the run fail. index_size is 4 or 8.
 */

/* gather: y[outer, count, inner] = data[outer, indices[count], inner]; a negative index counts from the end of the
 * axis, one that is out of range makes the run fail. Operands: y, data[outer, axis, inner], indices. */
typedef struct tc_gather_params {
  int64_t element_size; /* 1, 2, 4 or 8 */
  int64_t index_size;   /* 4 or 8 */
  int64_t outer, axis, inner;
  int64_t count;
} tc_gather_params;

/* gather_elements: y[i0, ..., i7] = data[i0 * data_stride0 + ... + index * axis_stride], one index per element of y;
 * the data's own stride along the indexed axis is 0. Operands: y, data, indices (contiguous, as y). */
typedef struct tc_gather_elements_params {
  int64_t element_size, index_size;
  int64_t axis, axis_stride;
  int64_t size0, size1, size2, size3, size4, size5, size6, size7;
  int64_t data_stride0, data_stride1, data_stride2, data_stride3, data_stride4, data_stride5, data_stride6,
      data_stride7;
} tc_gather_elements_params;

/* gather_nd: y[batch, count, inner] = data[batch, tuple, inner], one tuple of `depth` indices for each slice; they
 * address the innermost `depth` sizes, the others being 1. Operands: y, data, indices[batch, count, depth]. */
typedef struct tc_gather_nd_params {
  int64_t element_size, index_size;
  int64_t batch, count, depth, inner;
  int64_t size0, size1, size2, size3, size4, size5, size6, size7;
} tc_gather_nd_params;

/* reverse_sequence: the first lengths[batch] steps of every sequence in reverse order, for x[time, batch, inner] with
 * time_first, or else x[batch, time, inner]. Operands: y, x, lengths (int64). */
typedef struct tc_reverse_sequence_params {
  int64_t element_size;
  int64_t time_first; /* 0 or 1 */
  int64_t batch, time, inner;
} tc_reverse_sequence_params;

/* What becomes of an element that is written to. Integers wrap around; a maximum or minimum is NaN if either is. */
enum tc_scatter {
  TC_SCATTER_REPLACE = 0,
  TC_SCATTER_ADD = 1,
  TC_SCATTER_MUL = 2,
  TC_SCATTER_MAX = 3,
  TC_SCATTER_MIN = 4
};

/* scatter_elements: y[i0 * y_stride0 + ... + index * axis_stride] takes one update per index, in order along the last
 * dimension, which is that of the axis: y's own stride there is 0. Operands: y (which keeps what is not written),
 * indices, updates. */
typedef struct tc_scatter_elements_params {
  int64_t element_size, index_size;
  int64_t type, reduction; /* enum tc_type (without a reduction, any) and enum tc_scatter */
  int64_t axis, axis_stride;
  int64_t size0, size1, size2, size3, size4, size5, size6, size7;
  int64_t y_stride0, y_stride1, y_stride2, y_stride3, y_stride4, y_stride5, y_stride6, y_stride7;
  int64_t index_stride0, index_stride1, index_stride2, index_stride3, index_stride4, index_stride5, index_stride6,
      index_stride7;
  int64_t update_stride0, update_stride1, update_stride2, update_stride3, update_stride4, update_stride5,
      update_stride6, update_stride7;
} tc_scatter_elements_params;

/* scatter_nd: y[tuple, inner] takes updates[count, inner], one tuple of indices as in gather_nd for each slice, in
 * order. Operands: y (which keeps what is not written), indices[count, depth], updates. */
typedef struct tc_scatter_nd_params {
  int64_t element_size, index_size;
  int64_t type, reduction; /* as in scatter_elements */
  int64_t count, depth, inner;
  int64_t size0, size1, size2, size3, size4, size5, size6, size7;
} tc_scatter_nd_params;

/* tensor_scatter: y[batch, outer, starts[batch] + step, inner] = updates[batch, outer, step, inner] for `count` steps,
 * and what the cache holds elsewhere; what passes the end of the axis wraps around if circular, or else makes the run
 * fail. The result may be the cache itself, of which nothing is copied then.
 * Operands: y, cache, updates, starts (int64; optional: zeros). */
typedef struct tc_tensor_scatter_params {
  int64_t element_size;
  int64_t circular; /* 0 or 1 */
  int64_t batch, outer, axis, inner;
  int64_t count;
} tc_tensor_scatter_params;

/* one_hot: y[outer, d, inner] = values[indices[outer, inner] points to d ? 1 : 0]; an index out of range points
 * nowhere. Operands: y, indices, values[2]. */
typedef struct tc_one_hot_params {
  int64_t element_size, index_size;
  int64_t outer, depth, inner;
} tc_one_hot_params;

/* ---- classical models ---- */

enum { TC_TREES_AVERAGE, TC_TREES_SUM, TC_TREES_MIN, TC_TREES_MAX };

/* tree_ensemble_f32: y[row] = aggregate of the weights of the leaves that x[row] reaches, one per tree, + base. A node
 * sends a row to its first child where x[feature] <= threshold, or where that is NaN and its feature has bit 30, else
 * to its second; children come behind their parents, and what does not is a leaf. Infinite minima and maxima become 0.
 * Operands: y[rows, outputs], x[rows, features], nodes (int32 [nodes, 4]: feature, bits of the threshold, children),
 * leaves (int32 [nodes]: the row of weights), roots (int32 [3, trees]: nodes, then depths, then the only
 * output that the leaves of a tree say anything about, or -1), weights[leaves, outputs],
 * base[outputs] (optional). */
typedef struct tc_tree_ensemble_f32_params {
  int64_t rows, features, outputs;
  int64_t nodes, leaves, trees;
  int64_t aggregate; /* TC_TREES_AVERAGE, _SUM, _MIN or _MAX */
  int64_t tracks;    /* 1 if any feature has bit 30 */
  int64_t small;     /* room: the nodes of trees of at most 256 nodes and 64 leaves; 0 if all are to be walked */
} tc_tree_ensemble_f32_params;

/* tree_ensemble_f64: likewise with x, thresholds, weights, base and y in double, nodes (int32 [nodes, 5]). */
typedef tc_tree_ensemble_f32_params tc_tree_ensemble_f64_params;

enum { TC_CLASSES_NONE, TC_CLASSES_SOFTMAX, TC_CLASSES_LOGISTIC, TC_CLASSES_SOFTMAX_ZERO, TC_CLASSES_PROBIT };

/* class_scores_f32: y[row] = transform of x[row], class[row] = labels[the first of the greatest scores]. Where one of
 * two classes decides alone (`only`, else -1), it is the second if its score is above 1/2 (`positive`) or 0; if that is
 * class 0 and `mirrored`, its score is that of the second class, and the first one's 1 minus it or of the other sign.
 * Operands: y[rows, classes], class (int64 [rows], optional), x[rows, classes] (double where `wide`), labels (int64
 * [classes], where there is a class). */
typedef struct tc_class_scores_f32_params {
  int64_t rows, classes;
  int64_t transform; /* TC_CLASSES_... */
  int64_t only, positive, mirrored, wide;
} tc_class_scores_f32_params;

enum { TC_DISTANCE_SQUARED, TC_DISTANCE_EUCLIDEAN, TC_DISTANCE_MANHATTAN };

/* distances_f32: y[row, point] = the distance of x[row] and points[point], from the differences of their features.
 * Operands: y[rows, points], x[rows, features], points[points, features]. */
typedef struct tc_distances_f32_params {
  int64_t rows, points, features;
  int64_t metric; /* TC_DISTANCE_... */
} tc_distances_f32_params;

/* distances_f64: likewise in double. */
typedef tc_distances_f32_params tc_distances_f64_params;

/* pairwise_coupling_f32: the probabilities of classes that agree best with those of every two (Wu, Lin and Weng, the
 * second method), which are logistic functions of decisions: 1 / (1 + exp(a x + b)) for the first of the two. Computed
 * in double. Operands: y[rows, classes], x[rows, classes * (classes - 1) / 2], a and b [as many as x has columns]. */
typedef struct tc_pairwise_coupling_f32_params {
  int64_t rows, classes;
} tc_pairwise_coupling_f32_params;

/* ---- conversion, quantisation ---- */

/* quantize_f32: y = clamp(round(x / scale[axis]) + zero[axis]), ties to even, for x[outer, axis, inner]; NaN becomes
 * the lowest number. One scale for all is an axis of 1. Operands: y, x, scale, zero (optional, of y's type). */
typedef struct tc_quantize_f32_params {
  int64_t outer, axis, inner;
  int64_t type; /* of y: I8, U8, I16 or U16 */
} tc_quantize_f32_params;

/* dequantize_f32: y = (x - zero[axis]) * scale[axis]. Operands: y, x, scale, zero (optional, of x's type). Its type is
 * that of x: I8, U8, I16, U16 or I32. */
typedef tc_quantize_f32_params tc_dequantize_f32_params;

/* quantize_dynamic: y = clamp(round(x / scale) + zero), where scale and zero cover the range of x and 0, as ONNX's
 * DynamicQuantizeLinear has it; the scale of nothing but zeros is 1, that of a NaN or an infinity is NaN. Operands: y
 * (U8), scale, zero (U8), x. */
typedef struct tc_quantize_dynamic_params {
  int64_t count;
} tc_quantize_dynamic_params;

/* ---- products of 8-bit numbers ----
 * x is uint8 and the weights are constant: int8, or int16 for numbers that int8 cannot hold. Sums are exact in 32 bits,
 * where they wrap around: acc = sum of (x - x_zero_point) * weight + bias, with bias an int32 for each output channel
 * (optional, constant). Padding counts as x_zero_point. y is
 *   8-bit   clamp(round(acc * factors[channel]) + y_zero_point, low, high) by one of two rules,
 *   int32   acc, or
 *   float32 acc as a float32 * factors[channel]. y_zero_point, low and high mean nothing to these two.
 * factors are constants, one for each output channel, and absent for int32, which may have the zero point of x as an
 * operand instead: one uint8 (optional), beside an x_zero_point of 0. */

/* How a sum is multiplied and rounded. */
enum tc_requantize {
  TC_REQUANTIZE_FLOAT = 0, /* acc as a float32 times a float32 factor, ties to even */
  /* The factor is a pair of int32 (multiplier, shift) for multiplier / 2^31 * 2^shift, multiplier >= 0 and shift from
   * -31 to 31: acc * 2^shift if that is to the left; times the multiplier, the upper 32 bits of twice that, ties up;
   * shifted to the right if it is to the right, ties away from zero. */
  TC_REQUANTIZE_FIXED_POINT = 1
};

/* qconv2d: NHWC convolution. Operands: y, x, weights (ONNX order), bias, factors, zero point. */
typedef struct tc_qconv2d_params {
  int64_t batch, height, width, channels;
  int64_t out_height, out_width, out_channels;
  int64_t kernel_height, kernel_width;
  int64_t stride_height, stride_width;
  int64_t dilation_height, dilation_width;
  int64_t pad_top, pad_left;
  int64_t groups;
  int64_t x_pixel_stride, y_pixel_stride;
  int64_t x_zero_point;
  int64_t weight_type; /* I8 or I16 */
  int64_t type;        /* of y: U8, I8, I32 or F32 */
  int64_t rule;        /* an enum tc_requantize; FLOAT unless y is 8-bit */
  int64_t y_zero_point, low, high;
  int64_t algorithm;  /* an enum tc_conv_algorithm: DIRECT or AUTO */
  int64_t block_rows; /* output pixels of a block, or 0: see products of matrices */
} tc_qconv2d_params;

/* qconv2d_winograd: the same, bit by bit, for 3x3 windows of stride and dilation 1 in one group, int8 weights, and no
 * more than 1,827 channels, whose sums times four stay in 32 bits. The algorithm is WINOGRAD_2 or AUTO, and blocks are
 * of so many tiles. */
typedef tc_qconv2d_params tc_qconv2d_winograd_params;

/* qgemm: y[m,n] = x[m,k] * weights. Operands: y, x, weights ([k,n], or [n,k] with trans_b), bias, factors,
 * zero point. */
typedef struct tc_qgemm_params {
  int64_t m, n, k;
  int64_t x_row_stride, y_row_stride;
  int64_t trans_b; /* 0 or 1 */
  int64_t x_zero_point, weight_type, type, rule, y_zero_point, low, high;
  int64_t block_rows;
} tc_qgemm_params;

/* qdwconv2d: NHWC depthwise convolution, one filter per channel.
 * Operands: y, x, weights ([channels, 1, kernel_height, kernel_width]), bias, factors, zero point. */
typedef struct tc_qdwconv2d_params {
  int64_t batch, height, width, channels;
  int64_t out_height, out_width;
  int64_t kernel_height, kernel_width;
  int64_t stride_height, stride_width;
  int64_t dilation_height, dilation_width;
  int64_t pad_top, pad_left;
  int64_t x_pixel_stride, y_pixel_stride;
  int64_t x_zero_point, weight_type, type, rule, y_zero_point, low, high;
} tc_qdwconv2d_params;

/* qmatmul: y = x[m,k] * w[k,n] of two run-time matrices, batched over two dimensions as matmul_f32; x and w are uint8
 * or int8, and their zero points run-time operands. Operands: y, x, w, x's zero point (optional: 0; of x's type), w's
 * zero points (optional: 0; of w's type), one factor (absent for int32). */
typedef struct tc_qmatmul_params {
  int64_t batch0, batch1;
  int64_t m, n, k;
  int64_t x_batch0, x_batch1, x_row, x_column; /* strides of x[m,k] */
  int64_t w_batch0, w_batch1, w_row, w_column; /* strides of w[k,n] */
  int64_t y_batch0, y_batch1, y_row;           /* strides of y[m,n], whose columns lie side by side */
  int64_t x_type, w_type;                      /* U8 or I8 */
  int64_t w_zeros;                             /* how many: 1 or n */
  int64_t type, rule, y_zero_point, low, high;
} tc_qmatmul_params;

/* qlookup: y[rows, columns] = table[x], x being uint8. Operands: y, x, table (constant, 256 elements of y's size). */
typedef struct tc_qlookup_params {
  int64_t element_size; /* of y: 1, 2 or 4 */
  int64_t rows, columns;
  int64_t x_row_stride, y_row_stride;
} tc_qlookup_params;

/* qbinary: y = clamp(round(((a - a_zero_point) * a_scale op (b - b_zero_point) * b_scale) / y_scale) + y_zero_point,
 * low, high) in float32 step by step, for uint8 y, a and b. Strides of a and b may be 0. Operands: y, a, b. */
typedef struct tc_qbinary_params {
  int64_t op; /* ADD, SUB or MUL of enum tc_binary */
  int64_t a_zero_point, b_zero_point, y_zero_point, low, high;
  float a_scale, b_scale, y_scale;
  int64_t size0, size1, size2, size3, size4, size5, size6, size7;
  int64_t y_stride0, y_stride1, y_stride2, y_stride3, y_stride4, y_stride5, y_stride6, y_stride7;
  int64_t a_stride0, a_stride1, a_stride2, a_stride3, a_stride4, a_stride5, a_stride6, a_stride7;
  int64_t b_stride0, b_stride1, b_stride2, b_stride3, b_stride4, b_stride5, b_stride6, b_stride7;
} tc_qbinary_params;

/* qsoftmax: softmax along the axis of uint8 x[outer, axis, inner] in integers, with sums that wrap around in 32 bits:
 *   power   = powers[the greatest x of the line - x], of 0 or more, and sum is the sum of the powers of the line,
 *   scaled  = sum * 2^left with its highest bit in place 30,
 *   guess   = 2^14 * inverses[min((scaled - 2^30 + 2^21) >> 22, 255)],
 *   inverse = ((2^30 - ((scaled * guess + 2^22) >> 23)) * guess + half) >> inverse_shift, a step of Newton's method,
 *   share   = (power * (inverse * 2^left) + 2^21) >> 22,
 *   y       = clamp(round(share * multiplier / 2^31 * 2^shift) + y_zero_point, low, high), rounded by the rule
 *             FIXED_POINT, for shares below 2^31.
 * Operands: y, x, powers (constant, int32 [256]), inverses (constant, uint8 [256]). */
typedef struct tc_qsoftmax_params {
  int64_t outer, axis, inner;
  int64_t inverse_shift;     /* 29 to 50 */
  int64_t multiplier, shift; /* of all shares */
  int64_t y_zero_point, low, high;
} tc_qsoftmax_params;

/* qresize2d: linear interpolation of NHWC images of uint8 in integers:
 *   acc = sum over two lines and two columns of weight of line * weight of column * (x - x_zero_point),
 *   y   = clamp(round(acc * multiplier / 2^31 * 2^shift) + y_zero_point, low, high) by the rule FIXED_POINT.
 * A row of the tables has two positions and the weight of the second one; the first one's is what is missing to
 * line_steps or column_steps, of up to 2^11. Operands: y, x, lines, columns (constant, int32 [out_height, 3] and
 * [out_width, 3]). */
typedef struct tc_qresize2d_params {
  int64_t batch, height, width, channels;
  int64_t out_height, out_width;
  int64_t line_steps, column_steps;
  int64_t x_pixel_stride, y_pixel_stride;
  int64_t multiplier, shift;
  int64_t x_zero_point, y_zero_point, low, high;
} tc_qresize2d_params;

/* qmaxpool2d: NHWC maximum of uint8; 0 for a window in the padding alone. Operands: y, x. */
typedef struct tc_qmaxpool2d_params {
  int64_t batch, channels;
  int64_t height, width, out_height, out_width;
  int64_t kernel_height, kernel_width;
  int64_t stride_height, stride_width;
  int64_t dilation_height, dilation_width;
  int64_t pad_top, pad_left;
  int64_t x_pixel_stride, y_pixel_stride;
} tc_qmaxpool2d_params;

/* gemm_dequant_f32: y[m,n] = activation(x[m,k] * ((codes - zero) * scale) + bias) with constant codes, uint8 or int8
 * numbers one in a byte, of which those of 4 bits lie in 0..15 or -8..7. Each column has a scale, and a zero point of
 * the codes' type, for each `block` numbers of its depth (the last one may be shorter). Operands: y, x, codes[n,k],
 * scales[n,blocks], zero points[n,blocks] (optional: 0), bias[n] (optional). */
typedef struct tc_gemm_dequant_f32_params {
  int64_t m, n, k;
  int64_t lda, ldc;  /* row strides of x and y */
  int64_t bits;      /* 8 or 4: how codes are kept */
  int64_t code_type; /* U8 or I8 */
  int64_t block;     /* an even number, or 0 for all of the depth */
  int64_t activation;
  float activation_a, activation_b;
} tc_gemm_dequant_f32_params;

/* quantize_blocks_f32: rows of x as signed bytes with a scale for each `block` numbers: the largest magnitude over 127,
 * rounded to nearest, ties to even. Of each row there are `pitch` bytes, 0 behind its k numbers up to a whole block,
 * and figures [3][blocks]: the scales; int32, the sums of the bytes times -`middle`; the sums as floats. A block with
 * an infinity or NaN has the scale NaN. Operands: bytes[m,pitch], figures[m,3,blocks], x. */
typedef struct tc_quantize_blocks_f32_params {
  int64_t m, k;
  int64_t ldx;    /* row stride of x */
  int64_t block;  /* a multiple of 16 up to 256 */
  int64_t pitch;  /* bytes from one row to the next, at least k rounded up to whole blocks */
  int64_t middle; /* of the codes that the bytes are to be multiplied by */
} tc_quantize_blocks_f32_params;

/* gemm_blocks_f32: y[m,n] = activation(x[m,k] * ((codes - zero) * scale) + bias) where quantize_blocks_f32 has made
 * bytes and figures of x, for constant codes of 2, 4 or 8 bits as MatMulNBits of com.microsoft has them: the lowest
 * bits of a byte first. Products within a block are summed up exactly; blocks are added in their order, in f32.
 * Operands: y, bytes, figures, codes[n,blocks,block*bits/8] as bytes, scales[n,blocks], zero points (optional: the
 * middle of the codes; packed like the codes, every column in bytes of its own, or f32[n,blocks]), bias[n] (optional).
 */
typedef struct tc_gemm_blocks_f32_params {
  int64_t m, n, k;
  int64_t pitch, ldc; /* row strides of bytes and y */
  int64_t bits, block;
  int64_t scale_type; /* F32 or F16 */
  int64_t zero_type;  /* U8 or F32; -1 without zero points */
  int64_t activation;
  float activation_a, activation_b;
} tc_gemm_blocks_f32_params;

/* ---- resizing ---- */

/* max_pool_indices: y and its flat indices in x[images, depth, height, width], whose windows begin `before` cells ahead
 * of each axis; storage_order 1 counts the places in an image by columns first. Operands: y, indices (int64), x. */
typedef struct tc_max_pool_indices_params {
  int64_t type, storage_order, images;
  int64_t depth, height, width;
  int64_t out_depth, out_height, out_width;
  int64_t kernel_depth, kernel_height, kernel_width;
  int64_t stride_depth, stride_height, stride_width;
  int64_t dilation_depth, dilation_height, dilation_width;
  int64_t before_depth, before_height, before_width;
} tc_max_pool_indices_params;

/* col2im_f32: y[images, depth, height, width] adds up x[images, block_depth, block_height, block_width, blocks_depth,
 * blocks_height, blocks_width], whose blocks begin `before` cells ahead of each axis. Operands: y, x. */
typedef struct tc_col2im_f32_params {
  int64_t images;
  int64_t depth, height, width;
  int64_t block_depth, block_height, block_width;
  int64_t blocks_depth, blocks_height, blocks_width;
  int64_t stride_depth, stride_height, stride_width;
  int64_t dilation_depth, dilation_height, dilation_width;
  int64_t before_depth, before_height, before_width;
} tc_col2im_f32_params;

/* group_slices: of every slice of x[outer, count, inner] along its middle axis the first one that is equal to it, and
 * how many different ones come before it in ascending order; NaN comes last. Operands: first (int64), rank (int64), x.
 */
typedef struct tc_group_slices_params {
  int64_t type, outer, count, inner;
} tc_group_slices_params;

/* det: the determinants of x[batch, n, n], F32 or F64. Operands: y, x. */
typedef struct tc_det_params {
  int64_t type, batch, n;
} tc_det_params;

/* inverse: the inverses of x[batch, n, n], F32 or F64; NaN where a matrix has none. Operands: y, x. */
typedef struct tc_inverse_params {
  int64_t type, batch, n;
} tc_inverse_params;

/* resize2d_f32: y[line, column] = the sum over taps of weight * x[position], for NHWC images, lines and columns each
 * with tables [out_height, line_taps] and [out_width, column_taps] of int64 positions and f32 weights. Without weights
 * there is one tap, whose value is taken as it is. A position outside the image makes the run fail, unless `crops`:
 * then TC_RESIZE_OUTSIDE as the first one of a line or column is for `extrapolation` as its values. Operands: y, x,
 * line positions, column positions, line weights (optional), column weights (optional). */
typedef struct tc_resize2d_f32_params {
  int64_t batch, height, width, channels;
  int64_t out_height, out_width;
  int64_t line_taps, column_taps;
  int64_t x_pixel_stride, y_pixel_stride;
  int64_t crops;
  float extrapolation;
} tc_resize2d_f32_params;

enum tc_resize_mode { TC_RESIZE_NEAREST = 0, TC_RESIZE_LINEAR = 1, TC_RESIZE_CUBIC = 2 };

enum tc_resize_coordinates {
  TC_RESIZE_HALF_PIXEL = 0,
  TC_RESIZE_HALF_PIXEL_SYMMETRIC = 1,
  TC_RESIZE_PYTORCH_HALF_PIXEL = 2,
  TC_RESIZE_ALIGN_CORNERS = 3,
  TC_RESIZE_ASYMMETRIC = 4,
  TC_RESIZE_HALF_PIXEL_FOR_NEAREST = 5,
  TC_RESIZE_CROP = 6
};

enum { TC_RESIZE_OUTSIDE = -1 }; /* the cell of a position outside the image */

enum tc_resize_rounding {
  TC_RESIZE_ROUND_PREFER_FLOOR = 0,
  TC_RESIZE_ROUND_PREFER_CEIL = 1,
  TC_RESIZE_FLOOR = 2,
  TC_RESIZE_CEIL = 3,
  TC_RESIZE_FLOOR_UNLESS_SHRINKING = 4
};

/* resize_taps: the tables [output, taps] of int64 positions and f32 weights that ONNX's Resize reads an axis of `size`
 * cells by. Positions lie inside the axis, but for TC_RESIZE_OUTSIDE where a crop reaches beyond it; rows that need
 * fewer taps end with weights of 0. Without weights there is one tap. The axis is number `place` of the `places` that
 * scales (f64) and regions (f32: all starts, then all ends) are given for. Operands: positions, weights (optional),
 * scales (optional), regions (of a crop). */
typedef struct tc_resize_taps_params {
  int64_t size, output, taps;
  float scale;   /* 0: it is an operand, or without one output / size */
  int64_t whole; /* 1: the axis is stretched over `output`; 0: over size * scale, of which that is rounded down */
  int64_t mode, coordinates, rounding;
  float cubic_a;
  int64_t exclude_outside, antialias; /* 0 or 1 */
  int64_t place, places;
} tc_resize_taps_params;

enum tc_resize_policy { TC_RESIZE_BY_SCALES = 0, TC_RESIZE_NOT_LARGER = 1, TC_RESIZE_NOT_SMALLER = 2 };

/* resize_scales: f64 scales of the `count` axes that ONNX's Resize works on: those given, or the one by which all of
 * them keep their ratio while each is at most, or at least, as long as asked. Axes of sizeN cells must become outputN
 * long by them. Operands: scales, f32 scales (given) or int64 sizes (asked). */
typedef struct tc_resize_scales_params {
  int64_t count, policy;
  int64_t size0, size1, size2, size3, size4, size5, size6, size7;
  int64_t output0, output1, output2, output3, output4, output5, output6, output7;
} tc_resize_scales_params;

enum tc_grid_padding { TC_GRID_ZEROS = 0, TC_GRID_BORDER = 1, TC_GRID_REFLECTION = 2 };

/* grid_sample_f32: y[image, point] = x interpolated at grid[image, point], as ONNX's GridSample does it, for images of
 * up to three axes, channels last; coordinates run from -1 to 1 and stand innermost axis first. Of fewer axes, the
 * sizes in front are 1. Operands: y, x, grid (row-major [batch, points, axes]). */
typedef struct tc_grid_sample_f32_params {
  int64_t batch, depth, height, width, channels;
  int64_t axes;    /* 1 to 3 */
  int64_t points;  /* per image */
  int64_t mode;    /* an enum tc_resize_mode */
  int64_t padding; /* an enum tc_grid_padding: what lies outside */
  int64_t aligned; /* 0: -1 and 1 are the edges of the outer cells, 1: their centres; 2: coordinates are cells */
  int64_t x_pixel_stride, y_pixel_stride;
} tc_grid_sample_f32_params;

/* roi_align_f32: y[region, line, column] = the mean, or the largest, of bilinear samples of x in this cell of a region,
 * for NHWC images; without samples it is 0, and the largest is that of the weighted corners, as ONNX defines it. An
 * index of an image that is not there makes the run fail. Operands: y, x, regions [rois, 4] (x and y of one corner,
 * then of the other), images (int64 [rois]). */
typedef struct tc_roi_align_f32_params {
  int64_t batch, height, width, channels;
  int64_t rois, out_height, out_width;
  int64_t ratio;               /* samples per cell and axis; 0: one per pixel */
  float scale;                 /* from coordinates of regions to those of x */
  int64_t half_pixel, largest; /* 0 or 1 */
  int64_t x_pixel_stride, y_pixel_stride;
} tc_roi_align_f32_params;

/* conv_transpose2d_f32: NHWC transposed convolution with constant weights; y = activation(conv_transpose(x, w) + bias).
 * Output = input * stride + kernel position * dilation - pad; what falls outside the output is dropped. Operands: y, x,
 * w (ONNX order: [channels, out_channels/groups, kernel_height, kernel_width]), bias (optional, constant). */
typedef struct tc_conv_transpose2d_f32_params {
  int64_t batch, height, width, channels;
  int64_t out_height, out_width, out_channels;
  int64_t kernel_height, kernel_width;
  int64_t stride_height, stride_width;
  int64_t dilation_height, dilation_width;
  int64_t pad_top, pad_left;
  int64_t groups;
  int64_t x_pixel_stride, y_pixel_stride;
  int64_t activation;
  float activation_a, activation_b;
} tc_conv_transpose2d_f32_params;

/* ---- n-grams ---- */

enum tc_ngrams { TC_NGRAMS_COUNTS = 0, TC_NGRAMS_WEIGHTS = 1, TC_NGRAMS_PRODUCTS = 2 };

/* count_ngrams: y[rows, width] counts the n-grams of a pool in x[rows, length], I32 or I64, whose items are up to
 * skips + 1 apart. The pool begins with three words for each length of n-grams: the length, how many there are, and
 * where they lie; an n-gram is its items and its column, all of a length are sorted and distinct. The mode gives
 * counts, the weight of each column that is not 0, or products of both. Operands: y, x, pool, weights (f32 [width]). */
typedef struct tc_count_ngrams_params {
  int64_t rows, length, width, type;
  int64_t mode; /* an enum tc_ngrams */
  int64_t levels, skips, words;
} tc_count_ngrams_params;

/* ---- texts ---- */

/* Texts are elements of type U64, spans of a heap of bytes: the first byte in the lower 32 bits, the number of bytes in
 * the upper ones. A run fails where one leaves its heap. Kernels that make texts keep so many first bytes of the heap
 * that they read, for what lies there in every heap; then texts follow, one behind the other. */

/* text_concat: y[...] = a[...] and b[...] as one text; strides of 0 repeat. Operands: y (contiguous), its heap, a, its
 * heap, b, its heap. */
typedef struct tc_text_concat_params {
  int64_t size0, size1, size2, size3, size4, size5, size6, size7;
  int64_t a_stride0, a_stride1, a_stride2, a_stride3, a_stride4, a_stride5, a_stride6, a_stride7;
  int64_t b_stride0, b_stride1, b_stride2, b_stride3, b_stride4, b_stride5, b_stride6, b_stride7;
  int64_t bytes, a_bytes, b_bytes; /* of the heaps */
  int64_t kept;                    /* of the heap of a */
} tc_text_concat_params;

/* text_equal: y[...] = whether a[...] and b[...] are the same text; strides of 0 repeat. Operands: y (BOOL,
 * contiguous), a, its heap, b, its heap. */
typedef struct tc_text_equal_params {
  int64_t size0, size1, size2, size3, size4, size5, size6, size7;
  int64_t a_stride0, a_stride1, a_stride2, a_stride3, a_stride4, a_stride5, a_stride6, a_stride7;
  int64_t b_stride0, b_stride1, b_stride2, b_stride3, b_stride4, b_stride5, b_stride6, b_stride7;
  int64_t a_bytes, b_bytes; /* of the heaps */
} tc_text_equal_params;

/* text_lookup: y[texts], I64, is the number of each text in a table, or `missing`. The table is a hash table with open
 * addressing: two words for each slot, of which there is a power of two, and the bytes of all texts. The first word is
 * where a text begins among these times 2^32, plus its length and 1; or 0. The second one is its number. The hash is
 * FNV-1a of 64 bits, plus its upper half. Operands: y, x, its heap, table. */
typedef struct tc_text_lookup_params {
  int64_t texts, x_bytes;
  int64_t slots, words, missing;
} tc_text_lookup_params;

/* text_match: y[texts], BOOL, is whether an automaton accepts each text. It is I32: the class of every byte, by state
 * the next one for each class, whether each state accepts; it begins in state 0, and -1 is a dead end. Operands: y, x,
 * its heap, automaton. */
typedef struct tc_text_match_params {
  int64_t texts, x_bytes;
  int64_t states, classes;
} tc_text_match_params;

/* text_normalize: those of x[count] that are no stop words, in another case if there is a table of it; one empty text
 * if none is left. The table says what becomes of code points, see text_normalize.h. Stop words, in a table as of
 * text_lookup, are compared in the case of the other table, if there is one. Operands: y (with room for all), how many
 * there are (I64), the heap of y (only with a table of cases; otherwise it is that of x), x, its heap, cases, cases to
 * compare, stop words. */
typedef struct tc_text_normalize_params {
  int64_t count, total, longest; /* texts, the bytes of all, and of one: no more may come */
  int64_t bytes, x_bytes, kept;  /* of the heaps; three times the bytes of a text must be free in that of y */
  int64_t case_pages, case_words;
  int64_t stopped_pages, stopped_words;
  int64_t stop_slots, stop_words;
} tc_text_normalize_params;

/* text_rows: y[texts, width] are the parts of each text, counts[texts] of them, filled up with one text. Operands: y,
 * parts (with room for texts x most), counts (I64). */
typedef struct tc_text_rows_params {
  int64_t texts, width, most;
  int64_t fill_start, fill_length; /* the span of what fills up */
} tc_text_rows_params;

/* What the parts of a text are. */
enum tc_split {
  TC_SPLIT_BETWEEN_SPACES = 0,
  TC_SPLIT_BETWEEN_TEXTS = 1,   /* the pattern is a delimiter */
  TC_SPLIT_MATCHES = 2,         /* the longest ones from the left of an automaton, as of text_match */
  TC_SPLIT_BETWEEN_MATCHES = 3, /* of those that are not empty */
  TC_SPLIT_LETTERS = 4
};

/* text_split: the parts of x[texts], one behind the other, in the heap of x; how many each text has, and the most that
 * one has. Operands: parts (with room for texts x most), counts (I64 [texts]), the most (I64), x, its heap, pattern. */
typedef struct tc_text_split_params {
  int64_t texts, total, most; /* texts, the bytes of all, and the parts of one: no more may come */
  int64_t x_bytes;
  int64_t mode;      /* an enum tc_split */
  int64_t limit;     /* between delimiters or spaces: how often a text is cut at most, -1 for no limit */
  int64_t fewest;    /* letters of a part that counts */
  int64_t delimiter; /* bytes */
  int64_t states, classes;
} tc_text_split_params;

/* ---- recurrent networks ---- */

enum tc_cell {
  TC_CELL_RNN = 0,
  TC_CELL_LSTM = 1,
  TC_CELL_GRU = 2,       /* the reset gate is applied to the hidden state */
  TC_CELL_GRU_LINEAR = 3 /* to its product: ONNX's linear_before_reset */
};

/* recurrent_f32: RNN, LSTM or GRU over x, which holds what the inputs and the biases contribute to the gates, at each
 * time and for each sequence [directions, gates, hidden]. Sequences are as long as all steps or as lengths says; a
 * reversed one is reversed within its own length; y is 0 after its end. Gates, functions and peepholes are in ONNX's
 * order; f, g and h may be any enum tc_activation or enum tc_unary.
 * Operands: y (optional), last h (optional), last c (optional, LSTM), x, R (ONNX's [directions, gates * hidden,
 * hidden]), bias of the hidden gate inside the reset (optional, GRU_LINEAR, [directions, hidden]), peepholes (optional,
 * LSTM, [directions, 3 * hidden]), lengths (optional, int32 [batch]), first h (optional), first c (optional, LSTM), in
 * R's stead what recurrent_pack_f32 makes of it. */
typedef struct tc_recurrent_f32_params {
  int64_t cell; /* an enum tc_cell */
  int64_t steps, batch, hidden;
  int64_t directions;                   /* 1 or 2, the second against the first */
  int64_t reverse;                      /* 0 or 1: whether the first one is reversed */
  int64_t coupled;                      /* 0 or 1: an LSTM's forget gate is 1 minus its input gate */
  int64_t x_time, x_batch;              /* strides, in elements */
  int64_t y_time, y_direction, y_batch; /* strides of [.., hidden] */
  int64_t state_direction, state_batch; /* likewise, of the first and last states */
  int64_t f, g, h;
  float f_a, f_b, g_a, g_b, h_a, h_b;
  float clip; /* bounds what the functions read, but for an LSTM's h; infinity for no bound */
} tc_recurrent_f32_params;

/* recurrent_pack_f32: the R of recurrent_f32, packed: at most directions * gates * hidden * (hidden rounded up to a
 * multiple of 16) floats, of which each instruction set takes what it needs. Operands: packed, R. */
typedef struct tc_recurrent_pack_f32_params {
  int64_t cell; /* an enum tc_cell */
  int64_t directions, hidden;
} tc_recurrent_pack_f32_params;

/* qlstm: an LSTM of quantised weights over x, which holds the sums of products of the inputs, as bytes of a scale and a
 * zero point, with the weights W: int32 [steps, batch, directions, 4, hidden]. Hidden states are quantised before every
 * step, all rows with one scale. Weights have no zero points; their sums over the depth and scales are for every
 * direction and column, [directions, 4 * hidden]. Operands: y (optional, [steps, directions, batch, hidden]), x, R
 * ([directions, hidden, 4 * hidden], of the weight type), sums and scales of R, last h (optional, [directions, batch,
 * hidden]), last c (optional), scale and zero point (U8) of the inputs, sums and scales of W, bias (optional, as the
 * scales), first h (optional), first c (optional). */
typedef struct tc_qlstm_params {
  int64_t steps, batch, hidden;
  int64_t directions;  /* 1 or 2, the second against the first */
  int64_t reverse;     /* 0 or 1: whether the first one is reversed */
  int64_t weight_type; /* I8 or I16 */
} tc_qlstm_params;

/* ---- random numbers ---- */

enum tc_distribution { TC_RANDOM_UNIFORM = 0, TC_RANDOM_NORMAL = 1 };

/* random_key: two words that no other run has. Operands: key (uint64 [2]). */
typedef struct tc_random_key_params {
  int64_t unused;
} tc_random_key_params;

/* random: `count` numbers of a type, F32 or F64: uniform in [a, b), or normal with mean a and standard deviation b.
 * Number i depends on the key and on i alone. Operands: y, key (uint64 [2]). */
typedef struct tc_random_params {
  int64_t count, type, distribution;
  float a, b;
} tc_random_params;

/* dropout: y = mask ? x / (1 - ratio) : 0, where the mask is false with the probability `ratio` (1/2 if absent) and
 * training is true; elsewhere x. Numbers are F32 or F64. Operands: y (optional), mask (optional, a byte each), x, ratio
 * (optional), training (optional, a byte), key (uint64 [2], where there is no seed). */
typedef struct tc_dropout_params {
  int64_t count, type, ratio_type;
  int64_t seed; /* of 32 bits, or -1 */
} tc_dropout_params;

/* cdef-end */

#endif
