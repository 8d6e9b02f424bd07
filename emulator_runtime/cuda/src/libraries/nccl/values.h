/* Arithmetic on the values that collectives really exchange. */
#ifndef EMUGPU_NCCL_VALUES_H
#define EMUGPU_NCCL_VALUES_H

#include "interface.h"

#include <stdbool.h>

/* Bytes of an element; 0: there is no such type. */
size_t datatype_bytes(int datatype);
/* `output[i]` = the reduction of the i-th elements of all inputs by a built-in operator, in the order of the inputs. Floats
 * of less than 32 bits are added as 32-bit floats and rounded once. */
void reduce_values(int datatype, int operator, const void *const *inputs, int input_count, size_t count, void *output);
/* Multiply each value by `scalar`, which has the same type. */
void scale_values(int datatype, const void *scalar, size_t count, void *values);

#endif
