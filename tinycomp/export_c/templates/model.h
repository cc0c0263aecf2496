/* @title@ */
#ifndef @NAME@_H
#define @NAME@_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

@peak@
/* Bytes of memory for a run, aligned to @NAME@_ALIGNMENT; nothing in it outlives a run. */
#define @NAME@_MEMORY_BYTES @memory_bytes@
#define @NAME@_ALIGNMENT 64
/* Bytes of weights, which are never written, and what they are aligned to. */
#define @NAME@_WEIGHTS_BYTES @weights_bytes@
#define @NAME@_WEIGHTS_ALIGNMENT @alignment@

@elements@
@structs@

enum @name@_status {
  @NAME@_OK = 0,
  @NAME@_INVALID = 1, /* a pointer is NULL, or the memory is not aligned */
  @NAME@_FAILED = 2,  /* the data does not fit the model, such as an index out of range */
  @NAME@_SIZES = 3    /* a size is out of its bounds, or sizes do not fit each other */
};

/* Runs the model in the caller's memory: as many runs at a time as there are memories. Tensors are row-major
 * and aligned to their elements; outputs overlap nothing.@shapes_note@ Returns an enum @name@_status. */
int @name@_run_in(void *memory, @parameters@);

#ifndef @NAME@_NO_STATIC_MEMORY
/* The same in memory of the project's own: one run at a time. */
int @name@_run(@parameters@);
#endif

#ifdef __cplusplus
}
#endif

#endif
