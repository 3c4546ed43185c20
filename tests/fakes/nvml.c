/* A stand-in for libnvidia-ml.so.1, as far as the agent asks it: GPUs made of the arrays below.
 *
 * Signatures, numbers and layouts are those of NVIDIA's nvml.h. -DGPU_COUNT=2: so many, until a
 * test sets it. -DOLD_DRIVER leaves out what came late to the real library.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define GPUS 8
#define PROCESSES 4
#define FIELDS 256

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };

typedef unsigned long long number;

/* What tests set, by GPU. A GPU in parts does not tell its load. */
number gpu_count = GPU_COUNT, driver_code, is_lost[GPUS], is_in_parts[GPUS];
number gpu_percent[GPUS], used_bytes[GPUS], power_mw[GPUS], sm_mhz[GPUS], memory_mhz[GPUS];
number celsius[GPUS], reasons[GPUS], process_count[GPUS], pids[GPUS * PROCESSES];
/* By GPU and field; a field that is 0 is not supported. */
number has_field[GPUS * FIELDS], fields[GPUS * FIELDS];

static size_t gpu_of(void *device) { return (size_t)device - 1; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; return (int)driver_code; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "as the stand-in was told"; }

int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    snprintf(text, length, "550.54.15");
    return SUCCESS;
}
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 12040; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)gpu_count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= gpu_count) return INVALID_ARGUMENT;
    if (is_lost[index]) return GPU_IS_LOST;
    *device = (void *)(size_t)(index + 1);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    snprintf(uuid, length, "GPU-%08zx-0000-0000-0000-000000000000", gpu_of(device));
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    char known[96];
    for (size_t gpu = 0; gpu < gpu_count; gpu++) {
        nvmlDeviceGetUUID((void *)(gpu + 1), known, sizeof known);
        if (strcmp(known, uuid) == 0) {
            return nvmlDeviceGetHandleByIndex_v2((unsigned)gpu, device);
        }
    }
    return NOT_FOUND;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    snprintf(name, length, "NVIDIA Stand-in %zu", gpu_of(device));
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
    if (is_in_parts[gpu_of(device)]) return NOT_SUPPORTED;
    rates[0] = (unsigned)gpu_percent[gpu_of(device)];
    rates[1] = 12;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, number *memory) {
    memory[0] = 80ull << 30;
    memory[1] = memory[0] - used_bytes[gpu_of(device)];
    memory[2] = used_bytes[gpu_of(device)];
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *power) {
    *power = (unsigned)power_mw[gpu_of(device)];
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *device, unsigned clock, unsigned *mhz) {
    *mhz = (unsigned)(clock == 1 ? sm_mhz : memory_mhz)[gpu_of(device)];
    return clock == 1 || clock == 2 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *temperature) {
    *temperature = (unsigned)celsius[gpu_of(device)];
    return sensor == 0 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, number *found) {
    *found = reasons[gpu_of(device)];
    return SUCCESS;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetCurrentClocksEventReasons(void *device, number *found) {
    return nvmlDeviceGetCurrentClocksThrottleReasons(device, found);
}

struct process { unsigned pid; number used_bytes; unsigned gpu_instance, compute_instance; };

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *found) {
    size_t gpu = gpu_of(device);
    unsigned room = *count;
    *count = (unsigned)process_count[gpu];
    if (*count > room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) {
        found[i] = (struct process){(unsigned)pids[gpu * PROCESSES + i], 1ull << 30, ~0u, ~0u};
    }
    return SUCCESS;
}

struct field {
    uint32_t id, scope;
    int64_t timestamp, latency_us;
    unsigned type, code;
    union { double real; unsigned whole; number large; } value;
};

int nvmlDeviceGetFieldValues(void *device, int count, struct field *asked) {
    for (int i = 0; i < count; i++) {
        size_t place = gpu_of(device) * FIELDS + asked[i].id;
        if (asked[i].id >= FIELDS) { asked[i].code = INVALID_ARGUMENT; continue; }
        asked[i].code = has_field[place] ? SUCCESS : NOT_SUPPORTED;
        asked[i].type = 3; /* unsigned long long */
        asked[i].value.large = fields[place];
    }
    return SUCCESS;
}
#endif
