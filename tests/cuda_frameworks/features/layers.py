"""Layers: convolutions, recurrent networks, embeddings, normalisation, losses, attention."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel


def convolutions() -> None:
    for benchmark in (False, True):
        torch.backends.cudnn.benchmark = benchmark
        for layer, sizes in (
            (nn.Conv1d(8, 16, 3), (4, 8, 64)),
            (nn.Conv2d(8, 16, 3, stride=2, dilation=2), (4, 8, 32, 32)),
            (nn.Conv2d(8, 8, 3, groups=8), (4, 8, 32, 32)),
            (nn.Conv3d(8, 16, 3), (2, 8, 8, 8, 8)),
            (nn.ConvTranspose2d(8, 4, 2, stride=2), (4, 8, 16, 16)),
        ):
            layer.cuda()(torch.randn(sizes, device="cuda", requires_grad=True)).sum().backward()
            assert layer.weight.grad.shape == layer.weight.shape


def recurrent_networks() -> None:
    x = torch.randn(10, 4, 32, device="cuda", requires_grad=True)
    for net in (nn.LSTM(32, 64, 2, dropout=0.1), nn.GRU(32, 64, bidirectional=True), nn.RNN(32, 64)):
        net.cuda()(x)[0].sum().backward()
        assert all(parameter.grad is not None for parameter in net.parameters())
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([10, 7, 5, 2]))
    assert nn.LSTM(32, 64).cuda()(packed)[1][0].shape == (1, 4, 64)


def embeddings() -> None:
    words = torch.randint(0, 1000, (4, 16)).cuda()
    table = nn.Embedding(1000, 64).cuda()
    table(words).sum().backward()
    assert table.weight.grad.shape == (1000, 64)
    for mode in ("sum", "mean", "max"):
        bag = nn.EmbeddingBag(1000, 64, mode=mode).cuda()
        bag(words).sum().backward()
        assert bag.weight.grad.shape == (1000, 64)
    sparse = nn.Embedding(1000, 64, sparse=True).cuda()
    sparse(words).sum().backward()
    torch.optim.SGD(sparse.parameters(), 0.1).step()


def normalisation() -> None:
    x = torch.randn(4, 8, 16, 16, device="cuda", requires_grad=True)
    for layer in (nn.BatchNorm2d(8), nn.GroupNorm(2, 8), nn.LayerNorm([8, 16, 16]), nn.InstanceNorm2d(8, affine=True)):
        layer.cuda()(x).sum().backward()
        assert layer.weight.grad.shape == layer.weight.shape
    assert nn.BatchNorm2d(8).cuda().eval()(x).shape == x.shape
    assert functional.rms_norm(x, [16]).shape == x.shape


def losses() -> None:
    logits = torch.randn(20, 4, 10, device="cuda", requires_grad=True)
    targets = torch.randint(1, 10, (4, 5), dtype=torch.int32)
    scores = logits.log_softmax(2)
    loss = functional.ctc_loss(
        scores, targets, torch.full((4,), 20, dtype=torch.int32), torch.full((4,), 5, dtype=torch.int32)
    )
    classes = torch.zeros(20, dtype=torch.long, device="cuda")
    loss = loss + functional.cross_entropy(logits[:, 0], classes, label_smoothing=0.1)
    loss = (
        loss
        + functional.mse_loss(logits, torch.zeros_like(logits))
        + functional.huber_loss(logits, torch.zeros_like(logits))
    )
    loss.backward()
    assert logits.grad.shape == logits.shape
    assert isinstance(loss.item(), float)


def pictures() -> None:
    import torchvision
    from torchvision.transforms import v2

    x = torch.randn(2, 3, 32, 32, device="cuda", requires_grad=True)
    y = functional.interpolate(x, scale_factor=2, mode="bilinear")
    y = functional.grid_sample(y, torch.zeros(2, 32, 32, 2, device="cuda"), align_corners=False)
    y = functional.adaptive_avg_pool2d(functional.max_pool2d(y, 2), 4)
    y.sum().backward()
    boxes = torch.tensor([[0.0, 0.0, 9.0, 9.0], [1.0, 1.0, 8.0, 8.0]]).cuda()
    assert torchvision.ops.roi_align(x, [boxes, boxes], 7).shape == (4, 3, 7, 7)
    assert torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8]).cuda(), 0.5).dim() == 1
    crop = v2.RandomResizedCrop(16)
    assert crop(torch.zeros(3, 64, 64, dtype=torch.uint8, device="cuda")).shape == (3, 16, 16)


def decoding_of_jpeg() -> None:
    import torchvision

    picture = torchvision.io.encode_jpeg(torch.zeros(3, 32, 32, dtype=torch.uint8))
    print(torchvision.io.decode_jpeg(picture, device="cuda").shape)


def _attention(backend: SDPBackend) -> None:
    q, k, v = (torch.randn(2, 8, 512, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    with sdpa_kernel(backend):
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    y.sum().backward()
    assert y.shape == q.shape and q.grad.shape == q.shape


def attention_in_steps() -> None:
    _attention(SDPBackend.MATH)


def attention_flash() -> None:
    _attention(SDPBackend.FLASH_ATTENTION)


def attention_memory_efficient() -> None:
    _attention(SDPBackend.EFFICIENT_ATTENTION)


def attention_by_cudnn() -> None:
    _attention(SDPBackend.CUDNN_ATTENTION)


def transformer_encoder() -> None:
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 8, 256, batch_first=True), 2).cuda()
    net(torch.randn(4, 32, 128, device="cuda")).sum().backward()
    padding = torch.arange(32).expand(4, 32) >= torch.tensor([[32], [20], [10], [5]])
    net(torch.randn(4, 32, 128, device="cuda"), src_key_padding_mask=padding.cuda()).sum().backward()
    with torch.no_grad():
        assert net.eval()(torch.randn(4, 32, 128, device="cuda")).shape == (4, 32, 128)
