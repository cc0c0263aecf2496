/* col2im_f32: blocks of images or volumes, added up where they overlap. A unit is one channel of a result. */
#ifndef TINYCOMP_KERNELS_COPY_COL2IM_F32_H
#define TINYCOMP_KERNELS_COPY_COL2IM_F32_H

#include "vocabulary.h"

enum { COL2IM_Y, COL2IM_X };

static bool col2im_axis(int64_t size, int64_t blocks, int64_t block, int64_t stride, int64_t dilation, int64_t before) {
  const int64_t most = INT64_C(1) << 31;
  return size >= 0 && size <= most && blocks >= 0 && blocks <= most && block > 0 && block <= most && stride > 0 &&
         stride <= most && dilation > 0 && dilation <= most && before >= 0 && before <= most;
}

static void TC_NAME(tc_col2im_f32_prepare)(tc_prepare *prepare) {
  const tc_col2im_f32_params *p = prepare->params;
  TC_REQUIRE(
      prepare,
      col2im_axis(p->depth, p->blocks_depth, p->block_depth, p->stride_depth, p->dilation_depth, p->before_depth) &&
          col2im_axis(p->height, p->blocks_height, p->block_height, p->stride_height, p->dilation_height,
                      p->before_height) &&
          col2im_axis(p->width, p->blocks_width, p->block_width, p->stride_width, p->dilation_width, p->before_width),
      "a block does not fit its axis");
  tc_touch(prepare, COL2IM_Y, TC_PRODUCT(prepare, p->images, p->depth, p->height, p->width), sizeof(float));
  const int64_t block = TC_PRODUCT(prepare, p->block_depth, p->block_height, p->block_width);
  const int64_t blocks = TC_PRODUCT(prepare, p->blocks_depth, p->blocks_height, p->blocks_width);
  const int64_t elements = TC_PRODUCT(prepare, p->images, block, blocks);
  tc_touch(prepare, COL2IM_X, elements, sizeof(float));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = p->images;
  prepare->cost = 2.0 * (double)elements;
  prepare->work.flops = (double)elements;
}

/* Adds one line of blocks to a line of the image, from a cell on. */
static void col2im_line(const tc_col2im_f32_params *p, float *line, const float *x, int64_t first) {
  const int64_t skipped = first < 0 ? tc_ceil_div(-first, p->stride_width) : 0;
  for (int64_t i = skipped; i < p->blocks_width && first + i * p->stride_width < p->width; i++) {
    line[first + i * p->stride_width] += x[i];
  }
}

static void col2im_image(const tc_col2im_f32_params *p, float *y, const float *x) {
  memset(y, 0, (size_t)(p->depth * p->height * p->width) * sizeof(float));
  const int64_t block = p->block_depth * p->block_height * p->block_width;
  for (int64_t place = 0; place < block; place++) {
    const int64_t z = place / (p->block_height * p->block_width) * p->dilation_depth - p->before_depth;
    const int64_t row = place / p->block_width % p->block_height * p->dilation_height - p->before_height;
    const int64_t column = place % p->block_width * p->dilation_width - p->before_width;
    for (int64_t i = 0; i < p->blocks_depth * p->blocks_height; i++, x += p->blocks_width) {
      const int64_t d = z + i / p->blocks_height * p->stride_depth, h = row + i % p->blocks_height * p->stride_height;
      if (d >= 0 && d < p->depth && h >= 0 && h < p->height) {
        col2im_line(p, y + (d * p->height + h) * p->width, x, column);
      }
    }
  }
}

static void TC_NAME(tc_col2im_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_col2im_f32_params *p = call->params;
  const int64_t volume = p->depth * p->height * p->width;
  const int64_t columns =
      p->block_depth * p->block_height * p->block_width * p->blocks_depth * p->blocks_height * p->blocks_width;
  for (int64_t unit = begin; unit < end; unit++) {
    col2im_image(p, (float *)call->operands[COL2IM_Y] + unit * volume,
                 (const float *)call->operands[COL2IM_X] + unit * columns);
  }
}

#endif
