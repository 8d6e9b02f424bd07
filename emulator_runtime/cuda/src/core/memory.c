/* Memory of the emulated devices, and pinned memory of the host.
 *
 * An allocation is address space; a page costs memory of the host when it is first written. What counts in it is the data that the
 * host copied or set there, so that a checkpoint holds the parameters that a program gave to the device. Kernels write nothing:
 * see docs/cuda.md for what a program reads back.
 */
#include "internal.h"
#include "manager.h"
#include "statistics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALLOCATION_UNIT = 512, BLOCK = 64 << 10, SMALL_READ = 8 };

struct emu_physical {
    int device;
    size_t bytes;
    int held;       /* how often the program has it: as created and retained */
    int references; /* these, and one for each mapping */
};

/* A range of addresses. Ranges don't overlap, but mappings lie within a reservation. */
typedef struct {
    uintptr_t base;
    size_t bytes;
    int device;
    emu_memory_kind kind;
    bool registered;         /* the program's own memory */
    unsigned flags;
    uint64_t id;
    unsigned char *written;  /* device memory: for each block of 64 KiB, whether it contains data of the host */
    emu_physical *physical;  /* of a mapping */
} range;

typedef struct {
    range *ranges; /* by address */
    int count, room;
} range_list;

static range_list allocated; /* and mapped, and registered */
static range_list reserved;
static emu_pool physical_pool = {.object_bytes = sizeof(emu_physical)};
static uint64_t allocations;

/* ---- ranges ---- */

/* The number of ranges that begin at or before `address`. */
static int position(const range_list *list, uintptr_t address) {
    int low = 0, high = list->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (list->ranges[middle].base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static range *find(const range_list *list, const void *address) {
    int i = position(list, (uintptr_t)address) - 1;
    if (i < 0 || (uintptr_t)address - list->ranges[i].base >= list->ranges[i].bytes)
        return NULL;
    return &list->ranges[i];
}

static bool overlaps(const range_list *list, uintptr_t base, size_t bytes) {
    int i = position(list, base);
    return (i > 0 && base - list->ranges[i - 1].base < list->ranges[i - 1].bytes) ||
           (i < list->count && list->ranges[i].base - base < bytes);
}

static bool insert(range_list *list, const range *added) {
    if (list->count == list->room) {
        int room = list->room ? 2 * list->room : 256;
        range *grown = realloc(list->ranges, sizeof(range) * (size_t)room);
        if (grown == NULL)
            return false;
        list->ranges = grown;
        list->room = room;
    }
    int i = position(list, added->base);
    memmove(&list->ranges[i + 1], &list->ranges[i], sizeof(range) * (size_t)(list->count - i));
    list->ranges[i] = *added;
    list->ranges[i].id = ++allocations;
    list->count++;
    return true;
}

static void erase(range_list *list, range *gone) {
    free(gone->written);
    list->count--;
    memmove(gone, gone + 1, sizeof(range) * (size_t)(&list->ranges[list->count] - gone));
}

/* ---- capacity ---- */

/* Memory that a process can have: the rest is its context's, and other processes'. */
static size_t available(int device) {
    size_t total = settings.devices[device].memory_bytes;
    size_t others = manager_accounts(device) ? 0 : emu_statistics_memory_of_others(device);
    size_t taken = devices[device].used_bytes + others;
    return taken >= total ? 0 : total - taken;
}

void memory_account(int device, size_t used_bytes) {
    device_state *state = &devices[device];
    state->used_bytes = used_bytes;
    if (used_bytes > state->peak_bytes)
        state->peak_bytes = used_bytes;
    emu_statistics_memory(device, used_bytes);
    if (record_on)
        record_memory(device, used_bytes);
}

static emu_status charge(int device, size_t bytes) {
    device_begin_change(device);
    bool fits = bytes <= available(device) && manager_reserve(device, devices[device].used_bytes + bytes);
    if (fits)
        memory_account(device, devices[device].used_bytes + bytes);
    device_end_change(device);
    return fits ? EMU_OK : EMU_OUT_OF_MEMORY;
}

/* Never waits for another thread: work that ends may free memory while the lock is held twice, and no wait would release it then. */
static void give_back(int device, size_t bytes) {
    if (process_forked())
        return; /* the parent has it */
    memory_account(device, devices[device].used_bytes - bytes);
    devices[device].gave_back = true;
    if (!devices[device].changing) {
        device_begin_change(device);
        device_end_change(device);
    }
}

static void *address_space(size_t bytes) {
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
        return NULL;
    madvise(address, bytes, MADV_NOHUGEPAGE); /* a few bytes written must not cost 2 MiB */
    return address;
}

static size_t blocks_of(size_t bytes) {
    return (bytes + BLOCK - 1) / BLOCK;
}

/* ---- allocation ---- */

static emu_status allocate(int device, emu_memory_kind kind, size_t bytes, void **address) {
    emu_status status = device_usable(device);
    if (status == EMU_OK && kind != EMU_MEMORY_HOST)
        status = charge(device, bytes);
    if (status != EMU_OK)
        return status;
    void *base = address_space(bytes);
    range added = {.base = (uintptr_t)base, .bytes = bytes, .device = device, .kind = kind};
    if (kind != EMU_MEMORY_HOST)
        added.written = calloc(blocks_of(bytes), 1);
    if (kind == EMU_MEMORY_MANAGED && added.written != NULL)
        memset(added.written, 1, blocks_of(bytes)); /* the program writes it without asking */
    bool whole = base != NULL && (kind == EMU_MEMORY_HOST || added.written != NULL) && insert(&allocated, &added);
    if (whole) {
        *address = base;
        return EMU_OK;
    }
    if (base != NULL)
        munmap(base, bytes);
    free(added.written);
    if (kind != EMU_MEMORY_HOST)
        give_back(device, bytes);
    return EMU_OUT_OF_MEMORY;
}

emu_status emu_memory_allocate(int device, emu_memory_kind kind, size_t bytes, void **address) {
    if (emu_device(device) == NULL)
        return EMU_INVALID_DEVICE;
    if (bytes == 0 || address == NULL || kind == EMU_MEMORY_RESERVED)
        return EMU_INVALID_VALUE;
    if (bytes > SIZE_MAX - EMU_GRANULARITY)
        return EMU_OUT_OF_MEMORY;
    size_t whole_units = (bytes + ALLOCATION_UNIT - 1) / ALLOCATION_UNIT * ALLOCATION_UNIT;
    pthread_mutex_lock(&core_lock);
    emu_status status = allocate(device, kind, whole_units, address);
    pthread_mutex_unlock(&core_lock);
    return status;
}

emu_status emu_memory_free(emu_memory_kind kind, void *address) {
    if (address == NULL)
        return EMU_OK;
    pthread_mutex_lock(&core_lock);
    range *gone = find(&allocated, address);
    bool host = kind == EMU_MEMORY_HOST;
    bool ours = gone != NULL && gone->base == (uintptr_t)address && !gone->registered && gone->physical == NULL &&
                (gone->kind == EMU_MEMORY_HOST) == host;
    if (ours) {
        int device = gone->device;
        size_t bytes = gone->bytes;
        munmap(address, bytes);
        erase(&allocated, gone);
        if (!host)
            give_back(device, bytes); /* may wait, and others change the list */
    }
    pthread_mutex_unlock(&core_lock);
    return ours ? EMU_OK : EMU_INVALID_VALUE;
}

emu_status emu_memory_register(void *address, size_t bytes, unsigned flags) {
    if (address == NULL || bytes == 0 || bytes > SIZE_MAX - (uintptr_t)address)
        return EMU_INVALID_VALUE;
    if (!memory_mapped(address, bytes, TO_READ))
        return EMU_INVALID_VALUE;
    pthread_mutex_lock(&core_lock);
    emu_status status = EMU_HOST_MEMORY_ALREADY_REGISTERED;
    if (!overlaps(&allocated, (uintptr_t)address, bytes)) {
        range added = {.base = (uintptr_t)address, .bytes = bytes, .device = emu_current_device(),
                       .kind = EMU_MEMORY_HOST, .registered = true, .flags = flags};
        status = insert(&allocated, &added) ? EMU_OK : EMU_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&core_lock);
    return status;
}

emu_status emu_memory_unregister(void *address) {
    pthread_mutex_lock(&core_lock);
    range *gone = find(&allocated, address);
    bool ours = gone != NULL && gone->base == (uintptr_t)address && gone->registered;
    if (ours)
        erase(&allocated, gone);
    pthread_mutex_unlock(&core_lock);
    return ours ? EMU_OK : EMU_HOST_MEMORY_NOT_REGISTERED;
}

bool emu_memory_find(const void *address, emu_memory_info *info) {
    pthread_mutex_lock(&core_lock);
    const range *within = find(&allocated, address);
    if (within == NULL)
        within = find(&reserved, address);
    if (within != NULL) {
        info->base = (void *)within->base;
        info->bytes = within->bytes;
        info->device = within->device;
        info->kind = within->kind;
        info->id = within->id;
        info->flags = within->flags;
    }
    pthread_mutex_unlock(&core_lock);
    return within != NULL;
}

emu_status emu_memory_usage(int device, size_t *free_bytes, size_t *total_bytes) {
    if (emu_device(device) == NULL)
        return EMU_INVALID_DEVICE;
    pthread_mutex_lock(&core_lock);
    emu_status status = device_usable(device);
    *free_bytes = available(device);
    *total_bytes = settings.devices[device].memory_bytes;
    pthread_mutex_unlock(&core_lock);
    return status;
}

size_t emu_memory_peak(int device) {
    return emu_device(device) == NULL ? 0 : devices[device].peak_bytes;
}

/* An allocation of the device; false: there is none. */
static bool any_allocation(int device, range *found) {
    bool any = false;
    pthread_mutex_lock(&core_lock);
    for (int i = 0; i < allocated.count && !any; i++) {
        *found = allocated.ranges[i];
        any = found->device == device && found->kind != EMU_MEMORY_HOST && found->physical == NULL;
    }
    pthread_mutex_unlock(&core_lock);
    return any;
}

void memory_free_all(int device) {
    range found;
    while (any_allocation(device, &found))
        emu_memory_free(found.kind, (void *)found.base);
}

/* ---- virtual memory management ---- */

static bool whole_granules(size_t bytes) {
    return bytes > 0 && bytes % EMU_GRANULARITY == 0;
}

emu_status emu_address_reserve(size_t bytes, size_t alignment, void **address) {
    if (!whole_granules(bytes) || address == NULL || (alignment & (alignment - 1)) != 0 || alignment > (size_t)1 << 40)
        return EMU_INVALID_VALUE;
    size_t aligned = alignment > EMU_GRANULARITY ? alignment : EMU_GRANULARITY;
    if (bytes > (size_t)1 << 46)
        return EMU_OUT_OF_MEMORY;
    char *space = address_space(bytes + aligned);
    if (space == NULL)
        return EMU_OUT_OF_MEMORY;
    char *base = (char *)(((uintptr_t)space + aligned - 1) / aligned * aligned);
    if (base > space)
        munmap(space, (size_t)(base - space));
    munmap(base + bytes, (size_t)(space + aligned - base));
    pthread_mutex_lock(&core_lock);
    range added = {.base = (uintptr_t)base, .bytes = bytes, .device = emu_current_device(), .kind = EMU_MEMORY_RESERVED};
    bool kept = insert(&reserved, &added);
    pthread_mutex_unlock(&core_lock);
    if (!kept) {
        munmap(base, bytes);
        return EMU_OUT_OF_MEMORY;
    }
    *address = base;
    return EMU_OK;
}

emu_status emu_address_free(void *address, size_t bytes) {
    pthread_mutex_lock(&core_lock);
    range *gone = find(&reserved, address);
    bool ours = gone != NULL && gone->base == (uintptr_t)address && gone->bytes == bytes &&
                !overlaps(&allocated, gone->base, gone->bytes);
    if (ours) {
        munmap(address, bytes);
        erase(&reserved, gone);
    }
    pthread_mutex_unlock(&core_lock);
    return ours ? EMU_OK : EMU_INVALID_VALUE;
}

emu_status emu_physical_create(int device, size_t bytes, emu_physical **memory) {
    if (emu_device(device) == NULL)
        return EMU_INVALID_DEVICE;
    if (!whole_granules(bytes) || memory == NULL)
        return EMU_INVALID_VALUE;
    pthread_mutex_lock(&core_lock);
    emu_status status = device_usable(device);
    if (status == EMU_OK)
        status = charge(device, bytes);
    if (status == EMU_OK) {
        emu_physical *created = pool_take(&physical_pool);
        if (created == NULL) {
            give_back(device, bytes);
            status = EMU_OUT_OF_MEMORY;
        } else {
            *created = (emu_physical){.device = device, .bytes = bytes, .held = 1, .references = 1};
            *memory = created;
        }
    }
    pthread_mutex_unlock(&core_lock);
    return status;
}

static void let_go(emu_physical *memory) {
    if (--memory->references > 0)
        return;
    give_back(memory->device, memory->bytes);
    pool_give(&physical_pool, memory);
}

emu_status emu_physical_release(emu_physical *memory) {
    pthread_mutex_lock(&core_lock);
    bool live = pool_has(&physical_pool, memory) && memory->held > 0;
    if (live) {
        memory->held--;
        let_go(memory);
    }
    pthread_mutex_unlock(&core_lock);
    return live ? EMU_OK : EMU_INVALID_VALUE;
}

emu_status emu_physical_retain(void *address, emu_physical **memory) {
    pthread_mutex_lock(&core_lock);
    range *within = find(&allocated, address);
    bool mapped = memory != NULL && within != NULL && within->physical != NULL;
    if (mapped) {
        within->physical->references++;
        within->physical->held++;
        *memory = within->physical;
    }
    pthread_mutex_unlock(&core_lock);
    return mapped ? EMU_OK : EMU_INVALID_VALUE;
}

emu_status emu_physical_map(void *address, size_t bytes, size_t offset, emu_physical *memory) {
    uintptr_t base = (uintptr_t)address;
    pthread_mutex_lock(&core_lock);
    const range *space = find(&reserved, address);
    bool valid = whole_granules(bytes) && base % EMU_GRANULARITY == 0 && pool_has(&physical_pool, memory) &&
                 offset % EMU_GRANULARITY == 0 && offset <= memory->bytes && bytes <= memory->bytes - offset &&
                 space != NULL && bytes <= space->bytes - (base - space->base) && !overlaps(&allocated, base, bytes);
    emu_status status = EMU_INVALID_VALUE;
    if (valid) {
        range added = {.base = base, .bytes = bytes, .device = memory->device, .kind = EMU_MEMORY_DEVICE, .physical = memory,
                       .written = calloc(blocks_of(bytes), 1)};
        status = added.written != NULL && insert(&allocated, &added) ? EMU_OK : EMU_OUT_OF_MEMORY;
        if (status == EMU_OK)
            memory->references++;
        else
            free(added.written);
    }
    pthread_mutex_unlock(&core_lock);
    return status;
}

/* The data of unmapped memory is forgotten, also if the memory is mapped again. */
emu_status emu_physical_unmap(void *address, size_t bytes) {
    pthread_mutex_lock(&core_lock);
    uintptr_t at = (uintptr_t)address;
    uintptr_t end = at + bytes;
    bool valid = whole_granules(bytes) && end > at;
    for (uintptr_t next = at; valid && next < end;) { /* all of it must consist of whole mappings */
        const range *mapped = find(&allocated, (void *)next);
        valid = mapped != NULL && mapped->physical != NULL && mapped->base == next && mapped->bytes <= end - next;
        next += valid ? mapped->bytes : 0;
    }
    while (valid && at < end) {
        range *mapped = find(&allocated, (void *)at);
        size_t length = mapped->bytes;
        emu_physical *memory = mapped->physical;
        madvise((void *)at, length, MADV_DONTNEED);
        erase(&allocated, mapped);
        let_go(memory); /* may wait, and others change the list */
        at += length;
    }
    pthread_mutex_unlock(&core_lock);
    return valid ? EMU_OK : EMU_INVALID_VALUE;
}

/* ---- data ---- */

memory_place memory_place_of(const void *address, int *device) {
    const range *within = find(&allocated, address);
    *device = within == NULL ? -1 : within->device;
    if (within == NULL)
        return PLACE_PAGEABLE;
    return within->kind == EMU_MEMORY_HOST ? PLACE_PINNED : PLACE_DEVICE;
}

static range *device_range(const void *address) {
    range *within = find(&allocated, address);
    return within != NULL && within->kind != EMU_MEMORY_HOST ? within : NULL;
}

/* Bytes from `address` to the end of its range; all there are if it is the program's own memory. */
static size_t room_at(const void *address) {
    const range *within = find(&allocated, address);
    return within == NULL ? SIZE_MAX : within->bytes - ((uintptr_t)address - within->base);
}

/* Mappings side by side are one place for a program: PyTorch's expandable segments grow so. */
bool memory_contains(const void *address, size_t bytes) {
    const char *at = address;
    if (find(&allocated, at) == NULL)
        return true;
    for (size_t room = room_at(at); bytes > room; room = room_at(at)) {
        bytes -= room;
        at += room;
        if (find(&allocated, at) == NULL)
            return false;
    }
    return true;
}

bool emu_memory_reachable(const void *address, size_t bytes) {
    pthread_mutex_lock(&core_lock);
    bool reachable = find(&allocated, address) != NULL && memory_contains(address, bytes);
    pthread_mutex_unlock(&core_lock);
    return reachable;
}

/* By MADV_POPULATE_READ and _WRITE of Linux 5.14, which fail where the access would. Before, the kernel refuses it for any memory;
 * the protection is taken to be right then. */
static bool permits(uintptr_t address, memory_use use) {
    const int advice = use == TO_WRITE ? 23 : 22;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (madvise((void *)(address / page * page), page, advice) == 0 || (errno != EINVAL && errno != EFAULT))
        return true;
    return madvise((void *)((uintptr_t)&page / page * page), page, advice) != 0;
}

/* Reading the protection of all pages would take a third of the time that copying them takes. */
bool memory_mapped(const void *address, size_t bytes, memory_use use) {
    uintptr_t into_page = (uintptr_t)address % (uintptr_t)sysconf(_SC_PAGESIZE);
    if (bytes > SIZE_MAX - into_page)
        return false;
    if (msync((char *)address - into_page, bytes + into_page, MS_ASYNC) != 0 && errno == ENOMEM) /* MS_ASYNC writes nothing */
        return false;
    return bytes == 0 || (permits((uintptr_t)address, use) && permits((uintptr_t)address + bytes - 1, use));
}

static void mark(range *within, const void *address, size_t bytes, bool written) {
    size_t offset = (uintptr_t)address - within->base;
    if (written) {
        memset(within->written + offset / BLOCK, 1, (offset + bytes - 1) / BLOCK - offset / BLOCK + 1);
    } else { /* only whole blocks have lost all that the host wrote */
        size_t first = (offset + BLOCK - 1) / BLOCK;
        size_t last = (offset + bytes) / BLOCK;
        if (last > first)
            memset(within->written + first, 0, last - first);
    }
}

/* Rows beyond what is written cost nothing: an untouched page reads as zeros. */
static void copy_between_devices(range *target, void *to, const range *source, const void *from, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        size_t offset = (uintptr_t)from + done - source->base;
        size_t length = BLOCK - offset % BLOCK;
        if (length > bytes - done)
            length = bytes - done;
        bool written = source->written[offset / BLOCK];
        if (written)
            memmove((char *)to + done, (const char *)from + done, length);
        mark(target, (char *)to + done, length, written);
        done += length;
    }
    bool exchanged;
    if (values_known(from, bytes, source->device, &exchanged))
        values_written(to, bytes, target->device, exchanged);
}

static size_t least(size_t one, size_t other) {
    return one < other ? one : other;
}

/* Within one range on each side. */
static void move_part(void *to, const void *from, size_t bytes) {
    range *target = device_range(to);
    range *source = device_range(from);
    if (target != NULL && source != NULL) {
        copy_between_devices(target, to, source, from, bytes);
    } else if (source == NULL || source->kind != EMU_MEMORY_DEVICE || bytes > SMALL_READ ||
               !values_computed(to, from, bytes, source->device)) {
        memmove(to, from, bytes);
        if (target != NULL) {
            mark(target, to, bytes, true);
            values_written(to, bytes, target->device, false);
        }
    }
}

void memory_move(void *to, const void *from, size_t bytes) {
    while (bytes > 0) {
        size_t part = least(bytes, least(room_at(to), room_at(from)));
        move_part(to, from, part);
        to = (char *)to + part;
        from = (const char *)from + part;
        bytes -= part;
    }
}

/* Pages that are set to zero are given back instead. */
static void zero(void *address, size_t bytes) {
    uintptr_t page = 4096;
    uintptr_t first = ((uintptr_t)address + page - 1) / page * page;
    uintptr_t last = ((uintptr_t)address + bytes) / page * page;
    if (last <= first || bytes < BLOCK) {
        memset(address, 0, bytes);
        return;
    }
    memset(address, 0, first - (uintptr_t)address);
    madvise((void *)first, last - first, MADV_DONTNEED);
    memset((void *)last, 0, (uintptr_t)address + bytes - last);
}

/* Within one range. */
static void fill_part(void *address, unsigned value, size_t size, size_t count) {
    size_t bytes = size * count;
    range *target = device_range(address);
    if (target != NULL) {
        mark(target, address, bytes, value != 0);
        values_written(address, bytes, target->device, false);
    }
    if (value == 0 && target != NULL) {
        zero(address, bytes);
        return;
    }
    for (size_t i = 0; i < count; i++)
        memcpy((char *)address + i * size, &value, size);
}

/* Ranges end at whole elements: their lengths are multiples of 512, and elements are aligned. */
void memory_fill(void *address, unsigned value, size_t size, size_t count) {
    while (count > 0) {
        size_t part = least(count, room_at(address) / size);
        if (part == 0)
            part = 1; /* the program's own memory, pinned up to the middle of an element */
        fill_part(address, value, size, part);
        address = (char *)address + part * size;
        count -= part;
    }
}

void memory_written(void *address, size_t bytes, bool exchanged) {
    while (bytes > 0) {
        range *target = device_range(address);
        size_t part = least(bytes, room_at(address));
        mark(target, address, part, true);
        values_written(address, part, target->device, exchanged);
        address = (char *)address + part;
        bytes -= part;
    }
}

void emu_memory_written(void *address, size_t bytes) {
    pthread_mutex_lock(&core_lock);
    if (device_range(address) != NULL && memory_contains(address, bytes))
        memory_written(address, bytes, true);
    pthread_mutex_unlock(&core_lock);
}
