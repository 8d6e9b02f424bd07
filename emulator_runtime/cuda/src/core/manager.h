/* The connections to the sharing manager of the node, as docs/protocol.md describes them.
 *
 * A process has a session for each device that it uses, so that the processes of a container share only the devices that several
 * of them use. Whichever of them comes first has also the main session, without devices: it begins the container's run.
 * Without a manager (a program outside of a cluster) nothing of this is done, and all devices are the process's own.
 */
#ifndef EMUGPU_MANAGER_H
#define EMUGPU_MANAGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The core's lock is held by the caller of all of these but the last. */

/* The process uses the device for the first time. False, after a line in the log, if the manager refuses or doesn't answer. */
bool manager_enter(int device);
/* This process has `bytes` of the device from now on. False: there isn't so much. Released while a manager is asked for more. */
bool manager_reserve(int device, size_t bytes);
/* Whether the manager knows what all processes have of the device. */
bool manager_accounts(int device);
/* Whether the manager says when this device works. */
bool manager_shares(int device);
/* The device works for this process between `start_ns` and `end_ns`, for `work_ns` of it: reported when it is over, many together. */
void manager_worked(int device, int64_t start_ns, int64_t end_ns, int64_t work_ns);
/* In a forked child: the connections are the parent's. */
void manager_forget(void);
/* Ask for `work_ns` of a shared device, not before `ready_ns`; grant_answer brings the answer. */
void manager_demand(int device, int64_t sequence, int64_t ready_ns, int64_t work_ns);
/* The process ends: report what its devices have done until now, and hasn't been reported. */
void manager_finish(void);

#endif
