"""Memory of the core: limits, places, and which data survives."""

import pytest

MIB = 1 << 20


def test_a_device_has_what_its_settings_say_less_the_context(run_core):
    run_core("""
        free = core.free_bytes()
        assert free == (1 << 30) - (1 << 20)
        memory = core.allocate(1000)
        assert core.free_bytes() == free - 1024
        core.free(memory)
        assert core.free_bytes() == free
        whole = core.allocate(free)
        assert core.status("emu_memory_allocate", 0, DEVICE, c_size_t(1), byref(c_void_p())) == OUT_OF_MEMORY
        core.free(whole)
        assert core.library.emu_memory_peak(0) == 1 << 30
    """)


def test_wrong_addresses_are_refused(run_core):
    run_core("""
        memory, pinned = core.allocate(4096), core.allocate(4096, HOST)
        core.free(None)
        inside = c_void_p(memory.value + 512)
        for kind, address in ((DEVICE, inside), (DEVICE, pinned), (HOST, memory), (DEVICE, c_void_p(64))):
            assert core.status("emu_memory_free", kind, address) == INVALID_VALUE
        core.free(memory)
        assert core.status("emu_memory_free", DEVICE, memory) == INVALID_VALUE
        assert core.status("emu_memory_allocate", 0, DEVICE, c_size_t(0), byref(c_void_p())) == INVALID_VALUE
        assert core.status("emu_memory_allocate", 7, DEVICE, c_size_t(1), byref(c_void_p())) == 101
        stream, target = core.default_stream(), core.allocate(512)
        assert core.status("emu_copy", stream, target, pinned, c_size_t(1024), True) == INVALID_VALUE  # too long for it
        assert core.status("emu_set", stream, target, 1, c_size_t(4), c_size_t(129)) == INVALID_VALUE
        assert core.status("emu_set", stream, target, 1, c_size_t(3), c_size_t(1)) == INVALID_VALUE
    """)


def test_data_of_the_host_survives_a_round_trip_and_a_copy_on_the_device(run_core):
    run_core("""
        data = bytes(range(256)) * 4096
        one, two = core.allocate(len(data)), core.allocate(len(data))
        core.write(one, data)
        core.launch(core.default_stream())
        core.copy(core.default_stream(), two, one, len(data))
        core.free(one)
        assert core.read(two, len(data)) == data
        core.call("emu_set", core.default_stream(), two, 0, c_size_t(1), c_size_t(len(data)))
        assert core.read(two, len(data)) == bytes(len(data))
        core.call("emu_set", core.default_stream(), two, 0x01020304, c_size_t(4), c_size_t(4))
        assert core.read(two, 16) == bytes((4, 3, 2, 1)) * 4
    """)


def test_rows_are_set_and_the_gaps_between_them_are_not(run_core):
    run_core("""
        stream, target = core.default_stream(), core.allocate(4096)
        core.write(target, bytes(4096))
        def rows(pitch, size, count, rows):
            return core.status("emu_set_rows", stream, target, c_size_t(pitch), 0x0201, *map(c_size_t, (size, count, rows)))
        assert rows(6, 2, 2, 3) == 0
        assert core.read(target, 18) == (bytes((1, 2)) * 2 + bytes(2)) * 3
        assert rows(3, 2, 2, 3) == INVALID_VALUE  # rows that overlap
        assert rows(4096, 1, 1, 2) == INVALID_VALUE  # the second row lies behind the allocation
        assert rows(1 << 62, 1, 1, 5) == INVALID_VALUE
        assert rows(6, 2, 0, 3) == rows(6, 2, 2, 0) == 0
        assert core.read(target, 18) == (bytes((1, 2)) * 2 + bytes(2)) * 3
    """)


def test_large_allocations_cost_no_memory_of_the_host(run_core):
    run_core(
        """
        import resource
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        memory = core.allocate(60 << 30)
        core.call("emu_set", core.default_stream(), memory, 0, c_size_t(1), c_size_t(60 << 30))
        core.write(memory, b"x")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB
        """,
        device={"memory_bytes": 64 << 30},
    )


def test_addresses_and_memory_that_are_mapped_together(run_core):
    run_core("""
        unit, free = 2 << 20, core.free_bytes()
        space = core.made("emu_address_reserve", c_size_t(8 * unit), c_size_t(0))
        assert core.free_bytes() == free
        memory = core.made("emu_physical_create", 0, c_size_t(2 * unit))
        assert core.free_bytes() == free - 2 * unit
        second = c_void_p(space.value + unit)
        core.call("emu_physical_map", second, c_size_t(2 * unit), c_size_t(0), memory)
        assert core.status("emu_physical_map", space, c_size_t(2 * unit), c_size_t(0), memory) == INVALID_VALUE  # taken
        assert core.status("emu_physical_map", space, c_size_t(100), c_size_t(0), memory) == INVALID_VALUE
        core.write(second, b"mapped")
        assert core.read(second, 16)[:6] == b"mapped"
        core.call("emu_physical_release", memory)
        assert core.free_bytes() == free - 2 * unit  # still mapped
        assert core.status("emu_address_free", space, c_size_t(8 * unit)) == INVALID_VALUE
        core.call("emu_physical_unmap", second, c_size_t(2 * unit))
        assert core.free_bytes() == free
        core.call("emu_address_free", space, c_size_t(8 * unit))
        assert core.status("emu_physical_release", memory) == INVALID_VALUE
    """)


def test_memory_is_released_once_for_each_time_that_the_program_has_it(run_core):
    run_core("""
        unit, free = 2 << 20, core.free_bytes()
        space = core.made("emu_address_reserve", c_size_t(unit), c_size_t(0))
        memory = core.made("emu_physical_create", 0, c_size_t(unit))
        core.call("emu_physical_map", space, c_size_t(unit), c_size_t(0), memory)
        core.call("emu_physical_release", memory)
        assert core.status("emu_physical_release", memory) == INVALID_VALUE
        core.call("emu_physical_unmap", space, c_size_t(unit))
        assert core.free_bytes() == free
    """)


def test_managed_memory_has_what_the_program_writes(run_core):
    run_core("""
        managed, device = core.allocate(4096, 3), core.allocate(4096)
        ctypes.memmove(managed, b"program", 7)
        core.work(core.default_stream(), kind=0, name=b"kernel")
        assert core.read(managed, 7) == b"program"
        core.copy(core.default_stream(), device, managed, 4096)
        assert core.read(device, 16)[:7] == b"program"
    """)


def test_memory_that_the_program_registers_is_known_as_pinned(run_core):
    run_core("""
        class Info(ctypes.Structure):
            _fields_ = (("base", c_void_p), ("bytes", c_size_t), ("device", c_int), ("kind", c_int), ("id", c_int64),
                        ("flags", c_uint))
        buffer, info = ctypes.create_string_buffer(4096), Info()
        assert not core.library.emu_memory_find(buffer, byref(info))
        core.call("emu_memory_register", buffer, c_size_t(4096), 0)
        assert core.library.emu_memory_find(byref(buffer, 100), byref(info)) and info.kind == HOST
        assert core.status("emu_memory_register", byref(buffer, 8), c_size_t(8), 0) == 712
        core.call("emu_memory_unregister", buffer)
        assert core.status("emu_memory_unregister", buffer) == 713
    """)


def test_a_child_process_cannot_go_on_with_its_parents_devices(run_core):
    run_core("""
        core.allocate(512)
        child = os.fork()
        if child == 0:
            os._exit(core.status("emu_memory_allocate", 0, DEVICE, c_size_t(512), byref(c_void_p())))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    """)


def test_a_child_process_can_begin_if_its_parent_only_counted_devices(run_core):
    run_core("""
        assert core.library.emu_device_count() == 1
        child = os.fork()
        if child == 0:
            os._exit(core.status("emu_memory_allocate", 0, DEVICE, c_size_t(512), byref(c_void_p())))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("emugpu-cuda 2\n", "isn't 'emugpu-cuda 1'"),
        ("emugpu-cuda 1\nanchor x\n", "line 2: anchor x: not a value"),
        ("emugpu-cuda 1\nanchor -1\n", "line 2: anchor -1: not a value"),
        ("emugpu-cuda 1\nscalar nan\n", "not a value"),
        ("emugpu-cuda 1\nwarp 2\n", "not a value"),
        ("emugpu-cuda 1\nlog 99999999999\n", "not a value"),
        ("emugpu-cuda 1\ndevice 0\nmemory_bytes -1\n", "line 3: memory_bytes -1: not a value"),
        ("emugpu-cuda 1\ndevice 0\nmemory_part inf\n", "not a value"),
        ("emugpu-cuda 1\nestimator guess\n", "an estimator is constant or roofline"),
        ("emugpu-cuda 1\ndevice 0\nname " + "x" * 300 + "\n", "not a value"),
        ("emugpu-cuda 1\nclock /nowhere\ndevice 0\n", "/nowhere is not a clock"),
    ],
)
def test_wrong_settings_are_named_with_their_line(run_core, text, reason):
    assert reason in run_core("assert core.started != 0 and core.library.emu_device_count() == 0", text=text)
