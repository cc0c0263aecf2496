/* Packed weights and constants, as the kernels read them: @name@_weights.bin, which the assembler looks for where
 * it runs and in the folders of -I. */
#include "@name@_weights.h"

#ifndef @NAME@_WEIGHTS_SECTION
#define @NAME@_WEIGHTS_SECTION ".rodata.@name@_weights, \"a\""
#endif

__asm__(".section " @NAME@_WEIGHTS_SECTION "\n"
        ".balign @alignment@\n"
        ".global @name@_weights\n"
        "@name@_weights:\n"
        ".incbin \"@name@_weights.bin\"\n"
        ".text\n");
