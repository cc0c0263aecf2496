/* The kernel calls of the model, in order. */
#include "@name@.h"

@includes@

@constants@

int @name@_run_in(void *memory, @parameters@) {
  if (@missing@ || (uintptr_t)memory % @NAME@_ALIGNMENT) {
    return @NAME@_INVALID;
  }
  unsigned char *const arena = memory;
  (void)arena;
@find_weights@
  (void)weights;
@call@
@actions@
  return @NAME@_OK;
}

#ifndef @NAME@_NO_STATIC_MEMORY
int @name@_run(@parameters@) {
  static _Alignas(@NAME@_ALIGNMENT) unsigned char memory[@NAME@_MEMORY_BYTES];
  return @name@_run_in(memory, @arguments@);
}
#endif
