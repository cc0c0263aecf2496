/* tinycomp: types of elements, and what kernels compute of single elements. */
#ifndef TINYCOMP_ELEMENTS_H
#define TINYCOMP_ELEMENTS_H

/* cdef-begin: as in tinycomp.h. */

/* What an epilogue applies last; a and b are the fields activation_a and activation_b. */
enum tc_activation {
  TC_ACT_NONE = 0,
  TC_ACT_RELU = 1,
  TC_ACT_CLIP = 2,       /* min(max(x, a), b) */
  TC_ACT_LEAKY_RELU = 3, /* x < 0 ? a*x : x */
  TC_ACT_SIGMOID = 4,
  TC_ACT_TANH = 5,
  TC_ACT_SILU = 6,        /* x * sigmoid(x) */
  TC_ACT_HARDSWISH = 7,   /* x * clip(x/6 + 1/2, 0, 1) */
  TC_ACT_HARDSIGMOID = 8, /* clip(a*x + b, 0, 1) */
  TC_ACT_GELU_ERF = 9,
  TC_ACT_GELU_TANH = 10
};

/* ---- products of matrices ----
 * Their outputs are cut into blocks of rows and panels of columns. The fields that shape the blocks are 0 for what the
 * kernel thinks best on the machine where it runs; they never change a bit of the result. */

/* Types of elements, where a kernel must know them. */
enum tc_type {
  TC_TYPE_F32 = 0,
  TC_TYPE_F64 = 1,
  TC_TYPE_F16 = 2,
  TC_TYPE_BF16 = 3,
  TC_TYPE_I8 = 4,
  TC_TYPE_U8 = 5,
  TC_TYPE_I16 = 6,
  TC_TYPE_U16 = 7,
  TC_TYPE_I32 = 8,
  TC_TYPE_U32 = 9,
  TC_TYPE_I64 = 10,
  TC_TYPE_U64 = 11,
  TC_TYPE_BOOL = 12,
  TC_TYPE_I4 = 13, /* this and all that follow lie in the low bits of a byte each */
  TC_TYPE_U4 = 14,
  TC_TYPE_I2 = 15,
  TC_TYPE_U2 = 16,
  TC_TYPE_F8E4M3FN = 17,
  TC_TYPE_F8E4M3FNUZ = 18,
  TC_TYPE_F8E5M2 = 19,
  TC_TYPE_F8E5M2FNUZ = 20,
  TC_TYPE_F8E8M0FNU = 21, /* powers of two */
  TC_TYPE_F6E2M3FN = 22,
  TC_TYPE_F6E3M2FN = 23,
  TC_TYPE_F4E2M1FN = 24,
  TC_TYPES = 25 /* how many there are */
};

/* What a conversion to F8E8M0FNU does with a number between two powers of two. */
enum tc_scale_rounding { TC_SCALE_UP = 0, TC_SCALE_DOWN = 1, TC_SCALE_NEAREST = 2 };

/* Functions of one number: any enum tc_activation but NONE, or one of these. Integers have ABS, NEG, SIGN and NOT. */
enum tc_unary {
  TC_UNARY_ABS = 32,
  TC_UNARY_NEG = 33,
  TC_UNARY_EXP = 34,
  TC_UNARY_LOG = 35,
  TC_UNARY_SQRT = 36,
  TC_UNARY_RECIPROCAL = 37,
  TC_UNARY_FLOOR = 38,
  TC_UNARY_CEIL = 39,
  TC_UNARY_ROUND = 40, /* to nearest, ties to even */
  TC_UNARY_SIGN = 41,
  TC_UNARY_ERF = 42,
  TC_UNARY_SOFTPLUS = 43,         /* ln(1 + e^x) */
  TC_UNARY_SOFTSIGN = 44,         /* x / (1 + |x|) */
  TC_UNARY_ELU = 45,              /* x < 0 ? a*(e^x - 1) : x */
  TC_UNARY_SELU = 46,             /* b * elu(x) */
  TC_UNARY_CELU = 47,             /* x < 0 ? a*(e^(x/a) - 1) : x */
  TC_UNARY_MISH = 48,             /* x * tanh(ln(1 + e^x)) */
  TC_UNARY_THRESHOLDED_RELU = 49, /* x > a ? x : 0 */
  TC_UNARY_SHRINK = 50,           /* x < -a ? x + b : x > a ? x - b : 0 */
  TC_UNARY_SIN = 51,
  TC_UNARY_COS = 52,
  TC_UNARY_TAN = 53,
  TC_UNARY_ASIN = 54,
  TC_UNARY_ACOS = 55,
  TC_UNARY_ATAN = 56,
  TC_UNARY_SINH = 57,
  TC_UNARY_COSH = 58,
  TC_UNARY_ASINH = 59,
  TC_UNARY_ACOSH = 60,
  TC_UNARY_ATANH = 61,
  TC_UNARY_AFFINE = 62,      /* a*x + b; f32 only, as the next */
  TC_UNARY_SCALED_TANH = 63, /* a * tanh(b*x) */
  TC_UNARY_NOT = 64          /* of all bits; integers only */
};

/* Arithmetic on two operands. Integers wrap around; x / 0 and x mod 0 are 0 there. */
enum tc_binary {
  TC_BINARY_ADD = 0,
  TC_BINARY_SUB = 1,
  TC_BINARY_MUL = 2,
  TC_BINARY_DIV = 3, /* of integers: towards zero */
  TC_BINARY_POW = 4,
  TC_BINARY_MIN = 5,   /* NaN if either is */
  TC_BINARY_MAX = 6,   /* NaN if either is */
  TC_BINARY_MOD = 7,   /* the remainder with the sign of the divisor */
  TC_BINARY_FMOD = 8,  /* the remainder with the sign of the dividend */
  TC_BINARY_PRELU = 9, /* a < 0 ? a*b : a */
  TC_BINARY_AND = 10,  /* of bits, as all that follow; integers only */
  TC_BINARY_OR = 11,
  TC_BINARY_XOR = 12,
  TC_BINARY_SHIFT_LEFT = 13, /* by b bits; by less than 0 or the whole width and more, nothing but the sign is left */
  TC_BINARY_SHIFT_RIGHT = 14
};

/* Comparisons, whose results are bytes of 0 or 1; with NaN only NOT_EQUAL holds. */
enum tc_compare {
  TC_COMPARE_EQUAL = 0,
  TC_COMPARE_NOT_EQUAL = 1,
  TC_COMPARE_LESS = 2,
  TC_COMPARE_LESS_EQUAL = 3,
  TC_COMPARE_GREATER = 4,
  TC_COMPARE_GREATER_EQUAL = 5
};

/* Logic on bytes, of which all but 0 are true; negation is XOR with a true constant. */
enum tc_logical { TC_LOGICAL_AND = 0, TC_LOGICAL_OR = 1, TC_LOGICAL_XOR = 2, TC_LOGICAL_EQUAL = 3 };

/* What a step of an element-wise program does with its sources x, y and z, all of the step's type. */
enum tc_element {
  TC_ELEMENT_UNARY = 0,   /* an enum tc_unary of x with the coefficients a and b; f32, f64 and integers */
  TC_ELEMENT_BINARY = 1,  /* an enum tc_binary of x and y; f32, f64 and integers */
  TC_ELEMENT_COMPARE = 2, /* an enum tc_compare of x and y; f32, f64 and integers; gives BOOL */
  TC_ELEMENT_LOGICAL = 3, /* an enum tc_logical of x and y; BOOL */
  TC_ELEMENT_WHERE = 4,   /* x ? y : z; x is BOOL */
  TC_ELEMENT_CAST = 5 /* x as another type, the op being an enum tc_type. To floats of 8 bits: with a = 0 too large a
                         number becomes the largest, else infinity or NaN; b is an enum tc_scale_rounding */
};

/* The most that such a program may have. */
enum tc_element_limits {
  TC_ELEMENT_INPUTS = 11,
  TC_ELEMENT_OUTPUTS = 4,
  TC_ELEMENT_IMMEDIATES = 32,
  TC_ELEMENT_STEPS = 96
};

/* cdef-end */

#endif
