/* What the files of the emulated cuBLAS share: the handle, and giving work to its stream. */
#ifndef EMUGPU_CUBLAS_HANDLE_H
#define EMUGPU_CUBLAS_HANDLE_H

#include "mathematics/cublas_types.h"
#include "mathematics/work_formulas.h"

typedef struct {
    void *stream; /* as the program set it; NULL is the default stream */
    int pointer_mode;
    int math_mode;
    int atomics_mode;
    int sm_count_target;
} cublas_handle;

/* NULL: not a live handle, which every function answers by NOT_INITIALIZED. */
cublas_handle *cublas_find(const void *handle);

cublas_status cublas_launch(
    const cublas_handle *handle, emu_work_kind kind, const char *name, emu_precision precision, work_amount amount);

/* The precision of the typed functions (Sgemm, Ztrsm, ...): that of the element type, with the handle's math mode. */
emu_precision cublas_typed_precision(const cublas_handle *handle, int type);

/* `bytes` of the stream's work done, then `value` is at `result`: where a function hands a number to the host. On the device a
 * result is left as it is. */
cublas_status cublas_return_scalar(const cublas_handle *handle, void *result, const void *value, size_t bytes);

/* The device's array of `count` error numbers says that each problem was solved. */
cublas_status cublas_set_device_infos(const cublas_handle *handle, int *infos, int count);

static inline int cublas_at_least_one(int value) {
    return value > 1 ? value : 1;
}

static inline bool cublas_is_operation(int operation) {
    return operation >= CUBLAS_OP_N && operation <= CUBLAS_OP_C;
}

/* Sides, fill modes and diagonal types: 0 or 1 (a fill mode may also be 2, the full matrix). */
static inline bool cublas_is_choice(int value) {
    return value == 0 || value == 1;
}

/* Each family of functions has a name for each of the four element types. */
#define CUBLAS_REAL_TYPES(define) define(S, CUDA_R_32F) define(D, CUDA_R_64F)
#define CUBLAS_COMPLEX_TYPES(define) define(C, CUDA_C_32F) define(Z, CUDA_C_64F)
#define CUBLAS_TYPES(define) CUBLAS_REAL_TYPES(define) CUBLAS_COMPLEX_TYPES(define)

#endif
