/* The compute time of shared devices: asked from the sharing manager in chunks, so that a message pays for many kernels. */
#ifndef EMUGPU_GRANT_H
#define EMUGPU_GRANT_H

#include "internal.h"

/* Whether the end of this work is the manager's to say. */
bool grant_needed(const emu_stream *stream, const item *work);
/* Put what can be asked for by now in the stream's list into a chunk; the chunk is asked for when it is worth a message. */
void grant_ask(emu_stream *stream);
/* Ask at once for what is held back: the program waits. */
void grant_flush(void);
/* Whether the answer for `work` has come; then its times are set. */
bool grant_answered(item *work);
/* The manager's answer. */
void grant_answer(int device, int64_t sequence, int64_t start_ns, int64_t end_ns);
/* The work's end is known in another way. */
void grant_release(item *work);
/* Whether an answer is due. */
bool grant_asked(int device);
/* There will be no answer: the device is lost, or the process's own again. */
void grant_forget(int device);
/* The connection was lost and is there again: ask again for what wasn't answered. */
void grant_repeat(int device);

#endif
