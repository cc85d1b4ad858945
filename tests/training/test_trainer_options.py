"""What `train` says before the first step."""

import pytest
import torch
from lightning.pytorch.accelerators import AcceleratorRegistry

from seqattn.data.options import LoaderOptions
from seqattn.errors import UserError
from seqattn.training.lightning_trainer import made_trainer
from seqattn.training.precision import OnceUnscaled, Shadow
from seqattn.training.trainer_options import TrainerOptions


@pytest.mark.parametrize(
    ("precision", "accelerator", "native", "lines"),
    [
        ("bf16-mixed", "cpu", False, 1),
        ("bf16-mixed", "cpu", True, 0),
        ("bf16-mixed", "gpu", False, 0),
        (32, "cpu", False, 0),
    ],
)
def test_bfloat16_that_a_cpu_spells_out_is_advised_against(
    monkeypatch, precision, accelerator, native, lines
):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: native)
    options = TrainerOptions(precision=precision, accelerator=accelerator)
    advice = options.notices(LoaderOptions(), 5)[1:]
    assert len(advice) == lines
    assert all("trainer.precision=32" in line for line in advice)


@pytest.fixture
def gpu(monkeypatch):
    """A machine with two GPUs, as far as settings are asked about it; True where they have bf16."""
    told = {"is_available": True, "device_count": 2, "get_device_name": "NVIDIA H100"}
    for name, value in told.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)

    def has(bf16):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bf16)

    has(True)
    return has


def test_a_gpu_trains_in_bfloat16_if_it_has_it_and_a_cpu_in_float32(gpu):
    assert TrainerOptions().precision == "bf16-mixed"
    assert TrainerOptions(precision=32).precision == 32
    assert TrainerOptions(accelerator="cpu").precision == 32
    gpu(False)
    assert TrainerOptions(accelerator="gpu").precision == 32


def test_size_devices_precision_and_batches_are_said(gpu):
    options = TrainerOptions(accelerator="gpu", devices="auto")
    loader = LoaderOptions(num_workers=3)
    assert options.notices(loader, 1_234) == [
        "training 1,234 parameters on 2 x NVIDIA H100: trainer.precision=bf16-mixed "
        "trainer.tf32=true loader.max_tokens=4096 loader.num_workers=3"
    ]
    assert TrainerOptions(accelerator="cpu", devices=3, num_nodes=2).notices(loader, 5) == [
        f"training 5 parameters on 6 x CPU: trainer.precision=32 "
        f"trainer.threads={torch.get_num_threads()} loader.max_tokens=4096 loader.num_workers=3"
    ]


@pytest.mark.parametrize(("tf32", "cudnn"), [(True, False), (False, True)])
def test_a_gpu_is_set_up_as_its_settings_say(tmp_path, tf32, cudnn):
    before = torch.get_float32_matmul_precision(), torch.backends.cuda.cudnn_sdp_enabled()
    options = TrainerOptions(accelerator="mps", tf32=tf32, cudnn_attention=cudnn)
    try:
        with pytest.raises(UserError):  # there is none here
            made_trainer(options, tmp_path)
        assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
        assert torch.backends.cuda.cudnn_sdp_enabled() == cudnn
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cuda.enable_cudnn_sdp(before[1])


def test_a_whole_interval_of_validations_is_in_steps_a_share_is_of_an_epoch(tmp_path):
    options = TrainerOptions(
        accelerator="cpu", accumulate_grad_batches=3, val_check_interval=5, max_steps=9
    )
    trainer = made_trainer(options, tmp_path)
    assert trainer.val_check_interval == 5
    assert trainer.check_val_every_n_epoch is None
    shared = TrainerOptions(accelerator="cpu", accumulate_grad_batches=3, val_check_interval=0.5)
    assert made_trainer(shared, tmp_path).val_check_interval == 0.5


def test_fp16_unscales_gradients_once(tmp_path):
    trainer = made_trainer(TrainerOptions(accelerator="cpu", precision="16-mixed"), tmp_path)
    assert trainer.precision == "16-mixed"
    assert isinstance(trainer.precision_plugin.scaler, OnceUnscaled)


def test_clipping_by_value_is_refused_as_norms_alone_are_clipped():
    assert TrainerOptions(lightning={"gradient_clip_algorithm": "norm"}).lightning
    with pytest.raises(UserError, match=r"gradient_clip_algorithm must be norm, got value$"):
        TrainerOptions(lightning={"gradient_clip_algorithm": "value"})


@pytest.mark.parametrize("name", ["accumulate_grad_batches", "gradient_clip_val"])
def test_keys_of_the_step_are_refused_as_arguments_of_lightning(name):
    with pytest.raises(UserError, match=rf"lightning\.{name} has no effect; set trainer\.{name}$"):
        TrainerOptions(lightning={name: 2})


def test_shards_of_one_device_are_advised_against():
    alone, two = (TrainerOptions(accelerator="cpu", strategy="fsdp2", devices=n) for n in (1, 2))
    assert "set trainer.devices" in alone.notices(LoaderOptions(), 5)[1]
    assert len(two.notices(LoaderOptions(), 5)) == 1


@pytest.mark.parametrize(("devices", "first"), [(2, 1), ("auto", 1), ([3, 1], [3])])
def test_what_one_device_does_is_done_on_the_first_that_was_asked_for(devices, first):
    assert TrainerOptions(accelerator="gpu", devices=devices).alone().devices == first


@pytest.mark.parametrize("accelerator", ["tpu", "hpu", "cuda", "mps"])
def test_a_device_that_is_not_there_is_refused_in_one_line(accelerator):
    kind = dict(AcceleratorRegistry).get(accelerator)
    if kind is not None and kind["accelerator"].is_available():
        pytest.skip(f"there is a {accelerator} here")
    with pytest.raises(UserError, match=f"trainer.accelerator={accelerator} is not available on"):
        TrainerOptions(accelerator=accelerator).check_device()


def test_a_shadow_of_the_weights_is_of_one_device(tmp_path):
    options = TrainerOptions(accelerator="cpu", precision="bf16-shadow")
    options.check_device()
    assert isinstance(made_trainer(options, tmp_path).precision_plugin, Shadow)
    with pytest.raises(UserError, match="bf16-shadow trains on one device; use bf16-mixed"):
        TrainerOptions(accelerator="cpu", precision="bf16-shadow", devices=2).check_device()
    with pytest.raises(UserError, match=r"fsdp2 supports .*, got bf16-shadow"):
        TrainerOptions(precision="bf16-shadow", strategy="fsdp2")


def test_a_cpu_is_always_there():
    TrainerOptions(accelerator="cpu").check_device()


def test_graphs_of_sizes_that_seldom_come_back_are_advised_against():
    options = TrainerOptions(accelerator="gpu", devices=1, cuda_graphs=4)
    assert "set loader.round_to=4" in options.notices(LoaderOptions(), 5)[-1]
    assert not any("round_to" in x for x in options.notices(LoaderOptions(round_to=4), 5))


@pytest.mark.parametrize(
    ("options", "advice"),
    [({}, "needs a GPU"), ({"accelerator": "gpu", "devices": 2}, "is for one device")],
)
def test_graphs_are_refused_on_a_cpu_and_on_several_devices(options, advice):
    with pytest.raises(
        UserError, match=rf"^trainer\.cuda_graphs {advice}; set trainer\.cuda_graphs=0"
    ):
        TrainerOptions(**{"accelerator": "cpu", "cuda_graphs": 4, **options}).check_device()
