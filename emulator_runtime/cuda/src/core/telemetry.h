/* What the node's sharing manager knows of a device. */
#ifndef EMUGPU_TELEMETRY_H
#define EMUGPU_TELEMETRY_H

#include "statistics.h"

#include <stdbool.h>

/* Ask for it, as nvidia-smi does. False: there is no manager, it doesn't answer, or not for this device. */
bool telemetry_read(const char *uuid, emu_device_use *use);

#endif
