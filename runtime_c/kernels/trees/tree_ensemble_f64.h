/* tree_ensemble_f64: trees that compare and add up numbers of 64 bits. */
#ifndef TINYCOMP_KERNELS_TREES_TREE_ENSEMBLE_F64_H
#define TINYCOMP_KERNELS_TREES_TREE_ENSEMBLE_F64_H

#define trees_real double
#define TREES_RANKS 1
#define TREES_TYPED(name) name##_f64
#define TREES_BELOW nextafter
#define TREES_PREPARE TC_NAME(tc_tree_ensemble_f64_prepare)
#define TREES_PACK TC_NAME(tc_tree_ensemble_f64_pack)
#define TREES_RUN TC_NAME(tc_tree_ensemble_f64)
#include "walk.h"
#undef trees_real
#undef TREES_RANKS
#undef TREES_TYPED
#undef TREES_BELOW
#undef TREES_PREPARE
#undef TREES_PACK
#undef TREES_RUN

#endif
