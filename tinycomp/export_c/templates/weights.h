/* Packed weights and constants. */
#ifndef @NAME@_WEIGHTS_H
#define @NAME@_WEIGHTS_H

#include "@name@.h"

extern const unsigned char @name@_weights[]; /* @NAME@_WEIGHTS_BYTES */

#endif
