"""A catalogue of GPUs: what the vendors' datasheets and architecture guides say of them.

These are datasheet figures and are shown as such, never as measured. A GPU that is here on this host is measured,
whether it is listed or not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from playground.engine.messages import HostResult


def unit_of(arch: str) -> str:
    return "CU" if arch.startswith("gfx") else "SM"


def one_unit_of(arch: str) -> str:
    return {"CU": "a CU", "SM": "an SM"}[unit_of(arch)]


@dataclass(frozen=True)
class Gpu:
    """One card. Sizes in bytes (decimal for memory, binary for caches), rates in bytes/s and FLOP/s, dense.

    l1_bytes: shared memory and L1 together, for one SM; shared_bytes: the most of it that is shared memory.
    clock_hz: the boost clock, from which the on-chip rates are modelled. matrix_flops: bf16, fp16 where there is
    no bf16. infinity_bytes: AMD's memory-side cache.
    """

    name: str
    arch: str
    sms: int
    clock_hz: float
    register_bytes: int
    l1_bytes: int
    shared_bytes: int
    l2_bytes: int
    memory_bytes: float
    memory_rate: float
    matrix_flops: float
    vector_flops: float
    memory_kind: str
    source: str
    infinity_bytes: int = 0

    @property
    def host_rate(self) -> float:
        """PCIe x16 as the card has it, one way."""
        return HOST_LINKS.get(self.arch, HOST_LINK)

    @property
    def unit(self) -> str:
        """What the vendor calls a multiprocessor."""
        return unit_of(self.arch)

    @property
    def one_unit(self) -> str:
        return one_unit_of(self.arch)

    def matrix_rate(self, dtype: str) -> float:
        """FLOP/s of matrix products in a dtype, dense: 16-bit ones as listed, TF32 at half of that where there is such
        a mode (NVIDIA since Ampere, CDNA 3), and float32 at the vector units' rate, which AMD's matrix units share.
        """
        if dtype not in ("float32", "tf32"):
            return self.matrix_flops
        return self.matrix_flops / 2 if dtype == "tf32" and self.arch not in NO_TF32 else self.vector_flops

    @property
    def shared_rate(self) -> float:
        """Modelled: 128 bytes each clock in each SM or CU, the width of shared memory."""
        return 128.0 * self.sms * self.clock_hz

    @property
    def register_rate(self) -> float:
        """Modelled: three operands of 4 bytes for each of 128 lanes (64 on Turing and CDNA) each clock."""
        lanes = 64 if self.arch in ("sm_75", "sm_80") or self.arch.startswith("gfx9") else 128
        return 12.0 * lanes * self.sms * self.clock_hz


KIB, MIB = 1024, 1024**2
GB, TB, TERA = 1e9, 1e12, 1e12
HOST_LINKS = {"sm_75": 16 * GB, "sm_80": 32 * GB, "sm_89": 32 * GB}  # PCIe 3 and 4 x16, a way; others PCIe 5
HOST_LINK = 64 * GB
NO_TF32 = ("sm_75", "gfx950")

CATALOGUE = {
    gpu.name: gpu
    for gpu in (
        Gpu(
            "T4", "sm_75", 40, 1.59e9, 256 * KIB, 96 * KIB, 64 * KIB, 4 * MIB, 16 * GB, 320 * GB,
            65 * TERA, 8.1 * TERA, "GDDR6", "NVIDIA T4 datasheet; Turing architecture whitepaper",
        ),
        Gpu(
            "A100", "sm_80", 108, 1.41e9, 256 * KIB, 192 * KIB, 164 * KIB, 40 * MIB, 80 * GB, 2.039 * TB,
            312 * TERA, 19.5 * TERA, "HBM2e", "NVIDIA A100 80 GB SXM datasheet; Ampere architecture whitepaper",
        ),
        Gpu(
            "L4", "sm_89", 58, 2.04e9, 256 * KIB, 128 * KIB, 100 * KIB, 48 * MIB, 24 * GB, 300 * GB,
            121 * TERA, 30.3 * TERA, "GDDR6", "NVIDIA L4 datasheet; Ada architecture whitepaper",
        ),
        Gpu(
            "L40S", "sm_89", 142, 2.52e9, 256 * KIB, 128 * KIB, 100 * KIB, 96 * MIB, 48 * GB, 864 * GB,
            362 * TERA, 91.6 * TERA, "GDDR6", "NVIDIA L40S datasheet; Ada architecture whitepaper",
        ),
        Gpu(
            "RTX 4090", "sm_89", 128, 2.52e9, 256 * KIB, 128 * KIB, 100 * KIB, 72 * MIB, 24 * GB, 1.008 * TB,
            165 * TERA, 82.6 * TERA, "GDDR6X", "NVIDIA Ada architecture whitepaper, appendix A",
        ),
        Gpu(
            "RTX 5090", "sm_120", 170, 2.41e9, 256 * KIB, 128 * KIB, 100 * KIB, 96 * MIB, 32 * GB, 1.792 * TB,
            209.5 * TERA, 104.8 * TERA, "GDDR7", "NVIDIA RTX Blackwell architecture whitepaper, appendix A",
        ),
        Gpu(
            "H100", "sm_90", 132, 1.83e9, 256 * KIB, 256 * KIB, 228 * KIB, 50 * MIB, 80 * GB, 3.35 * TB,
            989 * TERA, 67 * TERA, "HBM3", "NVIDIA H100 SXM datasheet; Hopper architecture whitepaper",
        ),
        Gpu(
            "H200", "sm_90", 132, 1.83e9, 256 * KIB, 256 * KIB, 228 * KIB, 60 * MIB, 141 * GB, 4.8 * TB,
            989 * TERA, 67 * TERA, "HBM3e", "NVIDIA H200 SXM datasheet; Hopper whitepaper; L2 as the device reports it",
        ),
        Gpu(
            "B200", "sm_100", 148, 1.85e9, 256 * KIB, 256 * KIB, 228 * KIB, 126 * MIB, 180 * GB, 8.0 * TB,
            2250 * TERA, 75 * TERA, "HBM3e", "NVIDIA HGX B200 datasheet; Blackwell tuning guide",
        ),
        Gpu(
            "MI300X", "gfx942", 304, 2.1e9, 512 * KIB, 32 * KIB, 64 * KIB, 32 * MIB, 192 * GB, 5.3 * TB,
            1307 * TERA, 163.4 * TERA, "HBM3", "AMD Instinct MI300X datasheet; CDNA 3 whitepaper", 256 * MIB,
        ),
        Gpu(
            "MI355X", "gfx950", 256, 2.4e9, 512 * KIB, 32 * KIB, 160 * KIB, 32 * MIB, 288 * GB, 8.0 * TB,
            2500 * TERA, 157.3 * TERA, "HBM3e", "AMD Instinct MI355X datasheet; CDNA 4 whitepaper", 256 * MIB,
        ),
    )
}  # fmt: skip


def listed(device: str) -> Gpu | None:
    """The catalogue's card of a device's own name, such as "NVIDIA H200"; a slice of a card is none."""
    if "MIG" in device:
        return None
    words = device.replace("-", " ").split()
    named = [gpu for gpu in CATALOGUE.values() if all(word in words for word in gpu.name.split())]
    return max(named, key=lambda gpu: len(gpu.name)) if named else None


def this_device(host: HostResult) -> Gpu:
    """A GPU that is here, as the device itself says; limits of an SM are its architecture's, rates are measured.

    Rates that have not been measured are 0.
    """
    like = next((gpu for gpu in CATALOGUE.values() if gpu.arch == host.arch), CATALOGUE["H200"])
    roofs = host.roofs
    return replace(
        like,
        name=host.device,
        arch=host.arch,
        sms=host.units,
        l2_bytes=host.caches.get("L2", 0),
        memory_bytes=host.memory_bytes,
        memory_rate=roofs.copy_gbps * GB if roofs else 0.0,
        matrix_flops=max(roofs.matmul_tflops.values(), default=0.0) * TERA if roofs else 0.0,
        vector_flops=roofs.matmul_tflops.get("float32", 0.0) * TERA if roofs else 0.0,
        memory_kind="device memory",
        source="read from the device",
    )
