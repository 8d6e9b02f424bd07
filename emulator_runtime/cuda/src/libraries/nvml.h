/* The types and numbers of NVML's public interface that are used here, declared from its documentation. */
#ifndef EMUGPU_NVML_H
#define EMUGPU_NVML_H

#include <stdint.h>

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
} nvml_status;

enum { NVML_BRAND_UNKNOWN = 0, NVML_BRAND_TESLA = 2, NVML_BRAND_GEFORCE = 5, NVML_BRAND_TITAN = 6, NVML_BRAND_NVIDIA_RTX = 13, NVML_BRAND_NVIDIA = 14 };
enum { NVML_CLOCK_GRAPHICS = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2 };
enum { NVML_P2P_READ = 0, NVML_P2P_WRITE = 1, NVML_P2P_NVLINK = 2, NVML_P2P_STATUS_OK = 0, NVML_P2P_STATUS_NOT_SUPPORTED = 5 };
enum { NVML_PCI_VENDOR = 0x10de, NVML_NO_INSTANCE = -1 };

/* An opaque handle of a device. */
typedef const void *nvml_device;

typedef struct {
    uint64_t total, free, used;
} nvml_memory;

typedef struct {
    uint32_t version; /* size of the structure and its number, see NVML_MEMORY_V2 */
    uint64_t total, reserved, free, used;
} nvml_memory_v2;
#define NVML_MEMORY_V2 ((uint32_t)sizeof(nvml_memory_v2) | 2u << 24)

typedef struct {
    uint32_t version; /* see NVML_FABRIC_V2 and NVML_FABRIC_V3 */
    uint8_t cluster[16];
    uint32_t status, clique, state, health;
} nvml_fabric_v2;
typedef struct {
    nvml_fabric_v2 start;
    uint32_t health_summary;
} nvml_fabric_v3;
#define NVML_FABRIC_V2 ((uint32_t)sizeof(nvml_fabric_v2) | 2u << 24)
#define NVML_FABRIC_V3 ((uint32_t)sizeof(nvml_fabric_v3) | 3u << 24)

typedef struct {
    uint32_t gpu, memory; /* percent */
} nvml_utilization;

typedef struct {
    uint32_t pid;
    uint64_t memory_bytes;
} nvml_process_v1;

/* Of the second and third release of the functions. */
typedef struct {
    uint32_t pid;
    uint64_t memory_bytes;
    uint32_t gpu_instance, compute_instance;
} nvml_process;

typedef struct {
    char bus_id_short[16];
    uint32_t domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} nvml_pci;

#endif
