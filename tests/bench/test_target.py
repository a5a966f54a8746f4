"""Parsers of compiled programs, on small texts and on a program that XLA compiles in the test."""

import jax
import jax.numpy as jnp
import pytest

from bench import batch, ptx, results, target
from bench.cases import select
from bench.target import TPUS, WIDE, Clock, Cost, Kernel, beside_lax

MODULE = """HloModule m

%inside (p: f32[8]) -> f32[8] {
  ROOT %sort.1 = f32[8]{0} sort(%p), dimensions={0}
}

ENTRY %main (a: f32[4,100], b: bf16[4,100]) -> (f32[4,100], pred[4,100]) {
  %a = f32[4,100]{1,0:T(8,128)} parameter(0)
  %b = bf16[4,100]{1,0} parameter(1)
  %fusion = (f32[4,100]{1,0}, pred[4,100]{1,0}) fusion(%a, %b), kind=kLoop
  %gte = f32[4,100]{1,0} get-tuple-element(%fusion), index=0
  %helper = f32[4,100]{1,0} custom-call(%gte), custom_call_target="Sharding"
  %copy-start = (f32[4,100], f32[4,100]) copy-start(%gte)
  %copy-done = f32[4,100]{1,0} copy-done(%copy-start)
  ROOT %reduce-window.2 = f32[4,100]{1,0} reduce-window(%gte, %copy-done), to_apply=%inside, {"estimated_cycles":"70"}
}
"""


def test_kernel_bytes():
    kernels = target.kernels(MODULE, tpu=True)
    assert kernels == [
        Kernel("fusion", "fusion", 1600 + 800 + 1600 + 400),
        Kernel("copy-done", "async", 0, 4 * 128 * 4),
        Kernel("reduce-window.2", "reduce-window", 3 * 1600, estimate=70),
    ]
    assert [kernel.op for kernel in target.kernels(MODULE, tpu=False)][1] == "custom-call"


def test_bytes_sent_by_collectives():
    text = """
  %a = f32[1,1,256,8]{3,2,1,0} collective-permute(%x), channel_id=1, source_target_pairs={{0,1}}
  %b = (bf16[1,258,1,8]{1,3:T(8,128)S(1)}, bf16[1,258,1,8]{1,3}, u32[]) collective-permute-start(%y)
  %c = bf16[1,258,1,8]{1,3:T(8,128)S(1)} collective-permute-done(%b)
  %d = pred[] all-reduce(%z), to_apply=%or
"""
    assert batch.sent_bytes(text) == [
        ("collective-permute", 256 * 8 * 4),
        ("collective-permute", 258 * 8 * 2),
        ("all-reduce", 1),
    ]


def test_words_cover_every_computation():
    assert target.words(MODULE) == ("sort",)


def test_parse_program_compiled_by_xla():
    x, at = jax.ShapeDtypeStruct((8,), "float32"), jax.ShapeDtypeStruct((3,), "int32")
    text = jax.jit(lambda x, at: x.at[at].add(jnp.ones(3))).lower(x, at).compile().as_text()
    assert {"scatter", "while"} & set(target.words(text))


@pytest.mark.parametrize(
    ("text", "lanes", "size"),
    [
        ("f32[2,3]{1,0}", 1, 24),
        ("f32[2,3]{0,1}", 128, 128 * 3 * 4),
        ("(bf16[5]{0}, u8[5]{0}, pred[])", 1, 16),
        ("f8e4m3fn[7]{0}", 1, 7),
        ("c64[2]{0}", 1, 16),
    ],
)
def test_bytes_of_a_type(text, lanes, size):
    assert target.type_bytes(text, lanes) == size


def test_bundles_and_dmas_of_llo(tmp_path):
    (tmp_path / "1-fusion-0-original.txt").write_text("loop: start=0, step=1, limit=6\n")
    (tmp_path / "1-fusion-9-final_bundles.txt").write_text(
        "  0x0   :  { nop }\n  0x1 LB: > { x; dma.done.wait s0, 16 }\n  0x2   : > { y }\n"
    )
    costs = target.llo_costs(tmp_path)
    assert costs == {"fusion": Cost(1 + 4 + 4, 4 * 16 * 32)}
    kernels = [Kernel("fusion", "fusion", 0), Kernel("other", "async", 0, 3952)]
    by_bundles = Clock(bandwidth=1e9, frequency=1.0)
    assert target.model(kernels, costs, by_bundles) == 9
    by_moving = Clock(bandwidth=10.0, frequency=1.0)
    assert target.model(kernels, costs, by_moving) == (2048 + 3952) / 10
    estimated = [kernels[0]._replace(estimate=7), *kernels, kernels[1]._replace(estimate=5)]
    assert target.model(estimated, costs, by_bundles) == 9 + 9
    assert target.model(estimated, costs, by_bundles, by_libtpu=True) == 7 + 9 + 5


def test_cycle_ratio_to_lax_per_layout():
    cycles = {
        ("batch", "a", "jaxpool"): 2,
        ("batch", "a", "lax"): 1,
        ("batch", "b", "jaxpool"): 1,
        ("batch", "b", "lax"): 4,
        ("batch", "b", WIDE): 2,
        ("batch", "c", "jaxpool"): 9,
        ("default", "a", "jaxpool"): 3,
        ("default", "a", "lax"): 2,
    }
    rows = [
        {"layout": layout, "case": case, "by": who, "cycles": n, "libtpu's cycles": n * n}
        for (layout, case, who), n in cycles.items()
    ]
    rows.append({"layout": "batch", "case": "c", "by": "lax", "error": "no program"})
    assert beside_lax(rows).splitlines() == [
        "By an unvalidated model, cycles over lax's, batch, 2 rows: 1.00 in the geometric mean, 2.00 at most, a.",
        "By an unvalidated model, cycles over lax's, default, 1 rows: 1.50 in the geometric mean, 1.50 at most, a.",
        "With libtpu's estimates, cycles over lax's, batch, 2 rows: 1.00 in the geometric mean, 4.00 at most, a.",
        "With libtpu's estimates, cycles over lax's, default, 1 rows: 2.25 in the geometric mean, 2.25 at most, a.",
    ]
    assert beside_lax(rows[-1:]) == ""


def test_a_target_prints_and_writes_a_row_per_program(monkeypatch, tmp_path, capsys):
    class Stub:
        clock = TPUS["tpu:v5e"]
        close = compile = lambda *arguments, **options: {"kernels": 1, "cycles": 9}

    monkeypatch.setattr(target, "Target", lambda name: Stub())
    case = select(["max_pool(float32[2,8,8,3], (2, 2), (2, 2))", "small"])[0]
    assert target.run("tpu:v5e", [case], "forward", tmp_path / "a.json") == 0
    fields = results.read(tmp_path / "a.json")
    assert fields["conditions"]["target"] == "tpu:v5e"
    assert fields["rows"] == [
        {"case": case.name, "by": who, "layout": layout, "kernels": 1, "cycles": 9}
        for layout in target.LAYOUTS
        for who in ("jaxpool", "lax")
    ]
    assert capsys.readouterr().out.count(case.name) > 4


def test_costs_of_a_compiled_program(tmp_path):
    x = jax.ShapeDtypeStruct((8,), "float32")
    program = jax.jit(lambda x: x * 2 + 1).lower(x).compile()
    aim = object.__new__(target.Target)
    aim.name, aim.clock, aim.dump = "cpu", None, tmp_path
    row = aim._read(program, [x, x], 0.25)
    assert row == {"kernels": 1, "bytes": 1, "temporary MB": 0, "holds": "-", "compile s": 0.2}
    aim.clock = Clock(bandwidth=1.0, frequency=1.0)
    row = aim._read(program, [x, x], 0)
    assert (row["cycles"], row["libtpu's cycles"]) == (0, 0)


PTX = """
.visible .entry fusion_1(
\t.param .u64 .ptr .align 16 fusion_1_param_0,
\t.param .u64 .ptr .align 16 fusion_1_param_1
)
{
\t.reg .pred %p<2>;
\tld.param.b64 %rd1, [fusion_1_param_0];
\tcvta.to.global.u64 %rd2, %rd1;
\tld.param.b64 %rd3, [fusion_1_param_1];
\tsetp.lt.u32 %p1, %r1, 7;
\t@%p1 bra $L__BB0_2;
\tld.global.nc.b32 %r2, [%rd2+4];
$L__BB0_2:
\tadd.s64 %rd4, %rd2, %rd3;
\tld.global.nc.v4.b32 {%r3, %r4, %r5, %r6}, [ %rd4 + 0 ];
\tst.global.v4.b32 [%rd3], {%r3, %r4, %r5, %r6};
\tret;
}
"""


def test_instructions_of_a_gpu_kernel():
    (kernel,) = ptx.parse(PTX)
    assert kernel == ptx.PtxKernel("fusion_1", 10, 16, 1, 2, (0,), 1, 0)
    hlo = (
        "\nENTRY %m {\n  %p = f32[8,4] parameter(0)\n  %fusion.1 = f32[8,4] fusion(%p), kind=kLoop"
    )
    (row,) = ptx.costs([kernel], *target.types_of_kernels(hlo), num_elements=32)
    assert row == ptx.KernelCost("fusion_1", 10 * 8 / 32, 1, 2, 1, 1, 0)
    assert ptx.total([row, row])["instructions"] == 5
