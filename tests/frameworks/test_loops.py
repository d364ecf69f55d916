"""Loops written by hand with accelerate, peft and diffusers."""

import accelerate
import diffusers
import peft
import torch

from compare import Trained, check, copies, losses_of
from models import Texts, gpt2

STEPS = 6


def test_accelerate() -> None:
    def train() -> Trained:
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        model = gpt2()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=STEPS)
        loader = torch.utils.data.DataLoader(Texts(8 * STEPS), batch_size=8)
        model, optimizer, loader, scheduler = accelerator.prepare(
            model, optimizer, loader, scheduler
        )
        losses = []
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    losses.append(accelerator.clip_grad_norm_(model.parameters(), 1.0).item())
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(loss.item())
        return Trained(losses, copies(accelerator.unwrap_model(model).state_dict()))

    check("accelerate", train)


def test_peft() -> None:
    """LoRA: the base is frozen, and most of what is kept for backward is of the base."""

    def train() -> Trained:
        model = gpt2()
        torch.manual_seed(2)
        config = peft.LoraConfig(
            r=4, lora_alpha=8, lora_dropout=0.1, target_modules=["c_attn", "c_fc"], bias="none"
        )
        model = peft.get_peft_model(model, config)
        model.train()
        optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
        loader = torch.utils.data.DataLoader(Texts(8 * STEPS), batch_size=8)
        losses = losses_of(model, optimizer, loader)
        return Trained(losses, copies(model.state_dict()))

    check("peft, LoRA", train)


def test_diffusers() -> None:
    """The denoising step of diffusers' training examples."""

    def train() -> Trained:
        torch.manual_seed(0)
        model = diffusers.UNet2DConditionModel(
            sample_size=32,
            in_channels=3,
            out_channels=3,
            block_out_channels=(16, 32),
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            layers_per_block=1,
            cross_attention_dim=16,
            attention_head_dim=8,
            norm_num_groups=8,
        )
        scheduler = diffusers.DDPMScheduler(num_train_timesteps=100)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for _ in range(STEPS):
            clean, noise = torch.randn(4, 3, 32, 32), torch.randn(4, 3, 32, 32)
            times = torch.randint(100, (4,))
            noisy = scheduler.add_noise(clean, noise, times)
            predicted = model(noisy, times, encoder_hidden_states=torch.randn(4, 8, 16)).sample
            loss = torch.nn.functional.mse_loss(predicted, noise)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return Trained(losses, copies(model.state_dict()))

    check("diffusers, UNet", train)
