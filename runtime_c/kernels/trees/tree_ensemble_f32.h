/* tree_ensemble_f32: trees that compare and add up numbers of 32 bits. */
#ifndef TINYCOMP_KERNELS_TREES_TREE_ENSEMBLE_F32_H
#define TINYCOMP_KERNELS_TREES_TREE_ENSEMBLE_F32_H

#define trees_real float
#define TREES_RANKS 0
#define TREES_TYPED(name) name##_f32
#define TREES_BELOW nextafterf
#define TREES_PREPARE TC_NAME(tc_tree_ensemble_f32_prepare)
#define TREES_PACK TC_NAME(tc_tree_ensemble_f32_pack)
#define TREES_RUN TC_NAME(tc_tree_ensemble_f32)
#include "walk.h"
#undef trees_real
#undef TREES_RANKS
#undef TREES_TYPED
#undef TREES_BELOW
#undef TREES_PREPARE
#undef TREES_PACK
#undef TREES_RUN

#endif
