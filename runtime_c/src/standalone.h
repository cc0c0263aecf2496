/* For kernels that stand alone. Nothing calls the part of them that checks calls and packs weights, and compilers leave
 * it out; those that do not, without optimisation, shall not ask for what it refers to. */
#ifndef TINYCOMP_STANDALONE_H
#define TINYCOMP_STANDALONE_H

#include "nd.h"
#include "window.h"

#ifdef __GNUC__
#pragma weak tc_refuse
#pragma weak tc_refused
#pragma weak tc_product
#pragma weak tc_span
#pragma weak tc_touch
#pragma weak tc_touch_rows
#pragma weak tc_touch_matrices
#pragma weak tc_count
#pragma weak tc_distinct
#pragma weak tc_operate
#pragma weak tc_share
#pragma weak tc_check_activation
#pragma weak tc_check_window
#pragma weak tc_touch_image
#pragma weak tc_reach_of
#pragma weak tc_nd_touch
#pragma weak tc_nd_require_forward
#pragma weak tc_nd_make
#pragma weak tc_nd_add
#pragma weak tc_nd_add_contiguous
#pragma weak tc_nd_collapse
#pragma weak tc_nd_swap
#pragma weak tc_nd_count
#pragma weak tc_rows_make
#endif

#endif
