from unidex.storage.resources import available_memory, free_disk, process_memory


def test_available_memory_is_that_of_the_machine_or_of_the_container(tmp_path):
    memory, group = tmp_path / "meminfo", tmp_path / "group"
    group.mkdir()
    memory.write_text("MemTotal: 16000 kB\nMemAvailable: 8000 kB\n")
    assert available_memory(memory, group) == 8000 * 1024
    (group / "memory.current").write_text("3000000\n")
    (group / "memory.max").write_text("max\n")
    assert available_memory(memory, group) == 8000 * 1024
    (group / "memory.max").write_text("5000000\n")
    assert available_memory(memory, group) == 2_000_000
    (group / "memory.stat").write_text("anon 1\ninactive_file 400000\nactive_file 100000\n")
    assert available_memory(memory, group) == 2_500_000


def test_what_this_process_has_and_what_the_disk_has(tmp_path):
    assert 1 << 20 < process_memory() < 1 << 40
    assert free_disk(tmp_path / "not" / "yet") == free_disk(tmp_path) > 0
