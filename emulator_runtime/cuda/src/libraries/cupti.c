/* libcupti: profilers find out that nothing can be traced, with a text that says so.
 *
 * What devices did is in emugpu's own trace (`emugpu run --trace FILE`). */
#include "core.h"

enum { CUPTI_INVALID_PARAMETER = 1, CUPTI_NOT_SUPPORTED = 27 };

EMU_EXPORT int cuptiGetResultString(int result, const char **text) {
    if (text == NULL)
        return CUPTI_INVALID_PARAMETER;
    if (result == 0)
        *text = "CUPTI_SUCCESS";
    else
        *text = result == CUPTI_NOT_SUPPORTED ? "CUPTI_ERROR_NOT_SUPPORTED: emulated GPUs are traced by `emugpu run --trace`"
                                              : "CUPTI_ERROR_UNKNOWN";
    return 0;
}
