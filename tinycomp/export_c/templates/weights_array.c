/* Packed weights and constants, as the kernels read them. */
#include "@name@_weights.h"

#ifndef @NAME@_WEIGHTS_ATTRIBUTES /* such as __attribute__((section(".qspi"))) */
#define @NAME@_WEIGHTS_ATTRIBUTES
#endif

_Alignas(@alignment@) @NAME@_WEIGHTS_ATTRIBUTES const unsigned char @name@_weights[@NAME@_WEIGHTS_BYTES] = {
@weights_rows@
};
