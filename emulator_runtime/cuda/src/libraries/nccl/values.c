/* Arithmetic on the values that collectives really exchange.
 *
 * All of them are small (see protocol.h), so one element at a time is fast enough: a type is converted to the widest type of its
 * family, and back.
 */
#include "values.h"

#include <math.h>
#include <string.h>

size_t datatype_bytes(int datatype) {
    static const size_t bytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return datatype < 0 || datatype >= ncclNumTypes ? 0 : bytes[datatype];
}

/* How a float of few bits is stored: sign, exponent, mantissa, from the highest bit down. */
typedef struct {
    int exponent_bits, mantissa_bits;
    bool has_infinity; /* else the highest exponent has numbers, too, and all bits set are NaN (E4M3) */
} float_format;

static const float_format HALF = {5, 10, true}, BFLOAT16 = {8, 7, true}, E4M3 = {4, 3, false}, E5M2 = {5, 2, true};

static double decode(float_format format, unsigned bits) {
    unsigned mantissa = bits & ((1u << format.mantissa_bits) - 1);
    int exponent = (int)(bits >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
    bool negative = bits >> (format.mantissa_bits + format.exponent_bits) & 1;
    int highest = (1 << format.exponent_bits) - 1;
    int bias = highest >> 1;
    double value;
    if (format.has_infinity && exponent == highest)
        value = mantissa != 0 ? NAN : INFINITY;
    else if (!format.has_infinity && exponent == highest && mantissa == (1u << format.mantissa_bits) - 1)
        value = NAN;
    else if (exponent == 0)
        value = ldexp(mantissa, 1 - bias - format.mantissa_bits);
    else
        value = ldexp((1u << format.mantissa_bits) + mantissa, exponent - bias - format.mantissa_bits);
    return negative ? -value : value;
}

/* To the nearest; a tie goes to the even one. What is too large becomes infinite, or NaN where there is no infinity. */
static unsigned encode(float_format format, double value) {
    int highest = (1 << format.exponent_bits) - 1;
    int bias = highest >> 1;
    unsigned sign = signbit(value) ? 1u << (format.mantissa_bits + format.exponent_bits) : 0;
    unsigned not_a_number = ((unsigned)highest << format.mantissa_bits) | ((1u << format.mantissa_bits) - 1);
    unsigned beyond = format.has_infinity ? (unsigned)highest << format.mantissa_bits : not_a_number;
    if (isnan(value))
        return sign | not_a_number;
    value = fabs(value);
    if (isinf(value))
        return sign | beyond;
    if (value == 0)
        return sign;
    int exponent;
    frexp(value, &exponent); /* value = 0.5..1 * 2^exponent */
    exponent += bias - 1;
    if (exponent < 1)
        exponent = 1; /* no smaller exponent: fewer bits */
    if (exponent > highest)
        return sign | beyond;
    double mantissa = nearbyint(ldexp(value, bias + format.mantissa_bits - exponent));
    /* A mantissa that rounds up to the next power of two carries into the exponent, one below the hidden bit has exponent 0. */
    unsigned bits = ((unsigned)(exponent - 1) << format.mantissa_bits) + (unsigned)mantissa;
    return sign | (bits > beyond ? beyond : bits);
}

static float_format format_of(int datatype) {
    switch (datatype) {
    case ncclFloat16:
        return HALF;
    case ncclBfloat16:
        return BFLOAT16;
    case ncclFloat8e4m3:
        return E4M3;
    default:
        return E5M2;
    }
}

static bool is_float(int datatype) {
    return datatype >= ncclFloat16;
}

static double load_float(int datatype, const void *values, size_t index) {
    if (datatype == ncclFloat64)
        return ((const double *)values)[index];
    if (datatype == ncclFloat32)
        return ((const float *)values)[index];
    if (datatype_bytes(datatype) == 2)
        return decode(format_of(datatype), ((const uint16_t *)values)[index]);
    return decode(format_of(datatype), ((const uint8_t *)values)[index]);
}

static void store_float(int datatype, void *values, size_t index, double value) {
    if (datatype == ncclFloat64)
        ((double *)values)[index] = value;
    else if (datatype == ncclFloat32)
        ((float *)values)[index] = (float)value;
    else if (datatype_bytes(datatype) == 2)
        ((uint16_t *)values)[index] = (uint16_t)encode(format_of(datatype), value);
    else
        ((uint8_t *)values)[index] = (uint8_t)encode(format_of(datatype), value);
}

/* Integers are kept as 64 bits; those of unsigned types, too, so that sums and products overflow as on the device. */
static uint64_t load_integer(int datatype, const void *values, size_t index) {
    switch (datatype) {
    case ncclInt8:
        return (uint64_t)((const int8_t *)values)[index];
    case ncclUint8:
        return ((const uint8_t *)values)[index];
    case ncclInt32:
        return (uint64_t)((const int32_t *)values)[index];
    case ncclUint32:
        return ((const uint32_t *)values)[index];
    default:
        return ((const uint64_t *)values)[index];
    }
}

static void store_integer(int datatype, void *values, size_t index, uint64_t value) {
    switch (datatype_bytes(datatype)) {
    case 1:
        ((uint8_t *)values)[index] = (uint8_t)value;
        break;
    case 4:
        ((uint32_t *)values)[index] = (uint32_t)value;
        break;
    default:
        ((uint64_t *)values)[index] = value;
    }
}

static bool is_signed(int datatype) {
    return datatype == ncclInt8 || datatype == ncclInt32 || datatype == ncclInt64;
}

static bool integer_less(int datatype, uint64_t left, uint64_t right) {
    return is_signed(datatype) ? (int64_t)left < (int64_t)right : left < right;
}

static uint64_t combine_integers(int datatype, int operator, uint64_t left, uint64_t right) {
    switch (operator) {
    case ncclProd:
        return left * right;
    case ncclMax:
        return integer_less(datatype, left, right) ? right : left;
    case ncclMin:
        return integer_less(datatype, right, left) ? right : left;
    default:
        return left + right;
    }
}

/* 32-bit floats are added as such: the next representable value after each addition, as on the device. */
static double combine_floats(int datatype, int operator, double left, double right) {
    double result;
    switch (operator) {
    case ncclProd:
        result = left * right;
        break;
    case ncclMax:
        result = fmax(left, right);
        break;
    case ncclMin:
        result = fmin(left, right);
        break;
    default:
        result = left + right;
    }
    return datatype == ncclFloat64 ? result : (double)(float)result;
}

static uint64_t average_integer(int datatype, uint64_t sum, int count) {
    return is_signed(datatype) ? (uint64_t)((int64_t)sum / count) : sum / (uint64_t)count;
}

void reduce_values(int datatype, int operator, const void *const *inputs, int input_count, size_t count, void *output) {
    for (size_t i = 0; i < count; i++) {
        if (is_float(datatype)) {
            double value = load_float(datatype, inputs[0], i);
            for (int input = 1; input < input_count; input++)
                value = combine_floats(datatype, operator, value, load_float(datatype, inputs[input], i));
            store_float(datatype, output, i, operator == ncclAvg ? value / input_count : value);
        } else {
            uint64_t value = load_integer(datatype, inputs[0], i);
            for (int input = 1; input < input_count; input++)
                value = combine_integers(datatype, operator, value, load_integer(datatype, inputs[input], i));
            store_integer(datatype, output, i, operator == ncclAvg ? average_integer(datatype, value, input_count) : value);
        }
    }
}

void scale_values(int datatype, const void *scalar, size_t count, void *values) {
    for (size_t i = 0; i < count; i++) {
        if (is_float(datatype))
            store_float(datatype, values, i, load_float(datatype, values, i) * load_float(datatype, scalar, 0));
        else
            store_integer(datatype, values, i, load_integer(datatype, values, i) * load_integer(datatype, scalar, 0));
    }
}
