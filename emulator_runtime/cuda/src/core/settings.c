/* The settings of an emulated process: a text file with one `key value` in each line, written by emulator_runtime/cuda/launch.py. */
#include "internal.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

emu_settings settings;

typedef enum { INTEGER, LONG, SIZE, NUMBER, SCALAR, FLAG, TEXT } value_type; /* a SCALAR may be negative */

typedef struct {
    const char *key;
    value_type type;
    size_t offset;
    size_t room; /* of TEXT */
} setting;

#define PROCESS(key, type, field) {key, type, offsetof(emu_settings, field), sizeof(((emu_settings *)0)->field)}
#define DEVICE(key, type, field) {key, type, offsetof(emu_device_info, field), sizeof(((emu_device_info *)0)->field)}

static const setting of_process[] = {
    PROCESS("driver_version", INTEGER, driver_version),
    PROCESS("constant_ns", LONG, constant_ns),
    PROCESS("anchor", NUMBER, anchor),
    PROCESS("step_ns", LONG, step_ns),
    PROCESS("scalar", SCALAR, scalar),
    PROCESS("kernel_table", TEXT, kernel_table),
    PROCESS("trace", TEXT, trace),
    PROCESS("record", TEXT, record),
    PROCESS("clock", TEXT, clock),
    PROCESS("manager", TEXT, manager),
    PROCESS("token", TEXT, token),
    PROCESS("warp", FLAG, warp),
    PROCESS("virtual_ranks", INTEGER, virtual_ranks),
    PROCESS("log", INTEGER, log_level),
};

static const setting of_device[] = {
    DEVICE("name", TEXT, name),
    DEVICE("uuid", TEXT, uuid),
    DEVICE("gpu_type", TEXT, gpu_type),
    DEVICE("memory_bytes", SIZE, memory_bytes),
    DEVICE("context_bytes", SIZE, context_bytes),
    DEVICE("capability_major", INTEGER, capability_major),
    DEVICE("capability_minor", INTEGER, capability_minor),
    DEVICE("multiprocessors", INTEGER, multiprocessors),
    DEVICE("clock_khz", INTEGER, clock_khz),
    DEVICE("memory_clock_khz", INTEGER, memory_clock_khz),
    DEVICE("memory_bus_bits", INTEGER, memory_bus_bits),
    DEVICE("pci_bus", INTEGER, pci_bus),
    DEVICE("l2_bytes", SIZE, l2_bytes),
    DEVICE("shared_memory_per_multiprocessor", SIZE, shared_memory_per_multiprocessor),
    DEVICE("shared_memory_per_block_optin", SIZE, shared_memory_per_block_optin),
    DEVICE("flops_fp64", NUMBER, flops_per_s[EMU_FP64]),
    DEVICE("flops_fp32", NUMBER, flops_per_s[EMU_FP32]),
    DEVICE("flops_tf32", NUMBER, flops_per_s[EMU_TF32]),
    DEVICE("flops_fp16", NUMBER, flops_per_s[EMU_FP16]),
    DEVICE("flops_bf16", NUMBER, flops_per_s[EMU_BF16]),
    DEVICE("flops_fp8", NUMBER, flops_per_s[EMU_FP8]),
    DEVICE("flops_int8", NUMBER, flops_per_s[EMU_INT8]),
    DEVICE("memory_bytes_per_s", NUMBER, memory_bytes_per_s),
    DEVICE("host_link_bytes_per_s", NUMBER, host_link_bytes_per_s),
    DEVICE("peer_link_bytes_per_s", NUMBER, peer_link_bytes_per_s),
    DEVICE("convolution_part", NUMBER, roofline.convolution_part),
    DEVICE("product_part", NUMBER, roofline.product_part),
    DEVICE("memory_part", NUMBER, roofline.memory_part),
    DEVICE("normalisation", NUMBER, roofline.normalisation),
    DEVICE("half_columns", NUMBER, roofline.half_columns),
    DEVICE("half_depth", NUMBER, roofline.half_depth),
    DEVICE("kernel_ns", NUMBER, roofline.kernel_ns),
    DEVICE("dispatch_ns", NUMBER, roofline.dispatch_ns),
    DEVICE("half_product_part", NUMBER, roofline.half_product_part),
};

/* Answers false if `text` isn't a value of this type, or too long. */
static bool set(const setting *known, void *object, const char *text) {
    void *field = (char *)object + known->offset;
    char *rest = (char *)text;
    long long whole = 0;
    double number = 0;
    errno = 0;
    if (known->type == TEXT) {
        if (strlen(text) >= known->room)
            return false;
        strcpy(field, text);
        return true;
    }
    if (known->type == NUMBER || known->type == SCALAR)
        number = strtod(text, &rest);
    else
        whole = strtoll(text, &rest, 10);
    if (errno != 0 || rest == text || *rest != '\0' || whole < 0 || !isfinite(number) || (number < 0 && known->type != SCALAR))
        return false;
    switch (known->type) {
    case INTEGER:
        *(int *)field = (int)whole;
        return whole <= INT_MAX;
    case LONG:
        *(int64_t *)field = whole;
        return true;
    case SIZE:
        *(size_t *)field = (size_t)whole;
        return true;
    case FLAG:
        *(bool *)field = whole == 1;
        return whole <= 1;
    default:
        *(double *)field = number;
        return true;
    }
}

static const setting *named(const setting *table, size_t count, const char *key) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(table[i].key, key) == 0)
            return &table[i];
    }
    return NULL;
}

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* Answers what is wrong with the line; NULL: nothing. */
static const char *take_line(char *key, const char *value) {
    emu_device_info *device = settings.device_count > 0 ? &settings.devices[settings.device_count - 1] : NULL;
    if (strcmp(key, "device") == 0) {
        if (settings.device_count == EMU_MAX_DEVICES)
            return "there are at most 64 devices";
        settings.devices[settings.device_count] = (emu_device_info){
            .index = settings.device_count,
            .machine_index = settings.device_count,
            .pci_bus = settings.device_count + 1,
            .roofline = {.convolution_part = 0.6, .product_part = 0.6, .memory_part = 0.75, .normalisation = 1, .kernel_ns = 5000},
        };
        settings.device_count++;
        return NULL;
    }
    if (strcmp(key, "estimator") == 0) {
        if (strcmp(value, "constant") != 0 && strcmp(value, "roofline") != 0)
            return "an estimator is constant or roofline";
        settings.estimator = value[0] == 'c' ? ESTIMATE_CONSTANT : ESTIMATE_ROOFLINE;
        return NULL;
    }
    const setting *known = device != NULL ? named(of_device, COUNT(of_device), key) : named(of_process, COUNT(of_process), key);
    if (known == NULL) {
        emu_log(2, "settings: %s is unknown", key);
        return NULL;
    }
    return set(known, device != NULL ? (void *)device : (void *)&settings, value) ? NULL : "not a value of this setting";
}

static unsigned hexadecimal(char digit) {
    if (digit >= '0' && digit <= '9')
        return (unsigned)(digit - '0');
    return (unsigned)((digit | 0x20) - 'a' + 10);
}

/* The 16 bytes that "GPU-8-4-4-4-12" spells; a MIG instance's begins with "MIG-". */
static void read_uuid(emu_device_info *device) {
    int digits = 0;
    memset(device->uuid_bytes, 0, sizeof device->uuid_bytes);
    const char *text = strchr(device->uuid, '-');
    for (text = text == NULL ? device->uuid : text + 1; *text != '\0' && digits < 32; text++) {
        if (*text == '-')
            continue;
        unsigned char *byte = &device->uuid_bytes[digits++ / 2];
        *byte = (unsigned char)(*byte << 4 | (hexadecimal(*text) & 15));
    }
}

void settings_name_device(emu_device_info *device, const char *uuid) {
    snprintf(device->uuid, sizeof device->uuid, "%s", uuid);
    read_uuid(device);
}

static bool read_file(FILE *file, const char *path) {
    char line[1024];
    for (int number = 1; fgets(line, sizeof line, file) != NULL; number++) {
        line[strcspn(line, "\n")] = '\0';
        if (number == 1) {
            if (strcmp(line, "emugpu-cuda 1") == 0)
                continue;
            emu_log(1, "%s is not a settings file of this version (its first line isn't 'emugpu-cuda 1')", path);
            return false;
        }
        if (line[0] == '\0' || line[0] == '#')
            continue;
        char *value = strchr(line, ' ');
        if (value != NULL)
            *value++ = '\0';
        const char *wrong = take_line(line, value == NULL ? "" : value);
        if (wrong != NULL) {
            emu_log(1, "%s, line %d: %s %s: %s", path, number, line, value == NULL ? "" : value, wrong);
            return false;
        }
    }
    return true;
}

/* The nanoseconds of "86ms" or "1.5s"; 0: it isn't a time. */
static int64_t read_time(const char *text) {
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
    char *unit;
    double number = strtod(text, &unit);
    for (size_t i = 0; unit > text && i < COUNT(units); i++) {
        if (strcmp(unit, units[i].unit) == 0)
            return cost_in_ns(number * units[i].seconds);
    }
    return 0;
}

/* What a pod's author may choose, beside the file that the node has written. Answers false if it is wrong. */
static bool take_environment(void) {
    const char *level = getenv("EMUGPU_CUDA_LOG");
    if (level != NULL)
        settings.log_level = atoi(level);
    const char *step = getenv("EMUGPU_CUDA_STEP");
    if (step != NULL && step[0] != '\0') {
        settings.step_ns = read_time(step);
        if (settings.step_ns == 0)
            emu_log(1, "EMUGPU_CUDA_STEP must be a time such as 86ms, not %s", step);
    }
    const char *table = getenv("EMUGPU_CUDA_KERNEL_TABLE");
    if (table != NULL)
        snprintf(settings.kernel_table, sizeof settings.kernel_table, "%s", table);
    return step == NULL || step[0] == '\0' || settings.step_ns > 0;
}

/* In a container, the file is there for all to read, and the token is in the environment. */
static void take_token(void) {
    const char *token = getenv("EMUGPU_TOKEN");
    if (settings.token[0] != '\0' || token == NULL)
        return;
    if (strlen(token) >= sizeof settings.token)
        emu_log(1, "EMUGPU_TOKEN is too long");
    else
        strcpy(settings.token, token);
}

void settings_file_name(const char *setting, char *path, size_t room) {
    const char *number = strstr(setting, "%p");
    if (number == NULL)
        snprintf(path, room, "%s", setting);
    else
        snprintf(path, room, "%.*s%d%s", (int)(number - setting), setting, (int)getpid(), number + 2);
}

bool settings_read(void) {
    settings = (emu_settings){.driver_version = 13020, .constant_ns = 5000, .anchor = 1, .log_level = 1};
    const char *path = getenv("EMUGPU_CUDA_SETTINGS");
    if (path == NULL || path[0] == '\0') {
        emu_log(2, "EMUGPU_CUDA_SETTINGS isn't set: no devices");
        return false;
    }
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        emu_log(1, "can't read the settings %s: %s", path, strerror(errno));
        return false;
    }
    bool complete = read_file(file, path);
    fclose(file);
    take_token();
    complete &= take_environment();
    for (int i = 0; i < settings.device_count; i++)
        read_uuid(&settings.devices[i]);
    return complete;
}
