"""Mathematics: products, transforms, decompositions, sparse matrices."""

import torch


def matrix_products() -> None:
    a = torch.randn(4, 64, 32, device="cuda", requires_grad=True)
    b = torch.randn(4, 32, 16, device="cuda", requires_grad=True)
    torch.einsum("bij,bjk->bik", a, b).sum().backward()
    assert a.grad.shape == a.shape and b.grad.shape == b.shape
    assert torch.baddbmm(torch.zeros(4, 64, 16, device="cuda"), a, b).shape == (4, 64, 16)
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.complex64):
        x = torch.ones(32, 32, device="cuda", dtype=dtype)
        assert (x @ x).shape == (32, 32) and (x @ x[0]).shape == (32,)
    torch.backends.cuda.matmul.allow_tf32 = True
    assert torch.addmm(torch.zeros(16, device="cuda"), a[0], b[0]).shape == (64, 16)


def fourier_transforms() -> None:
    x = torch.randn(8, 128, device="cuda", requires_grad=True)
    spectrum = torch.fft.rfft(x)
    assert spectrum.shape == (8, 65)
    torch.fft.irfft(spectrum, n=128).sum().backward()
    assert x.grad.shape == x.shape
    assert torch.fft.fft2(torch.randn(2, 16, 16, device="cuda")).shape == (2, 16, 16)
    assert torch.stft(x[0], 32, return_complex=True, window=torch.ones(32, device="cuda")).shape[0] == 17


def decompositions() -> None:
    a = torch.randn(3, 16, 16, device="cuda")
    assert torch.linalg.svdvals(a).shape == (3, 16)
    assert torch.linalg.qr(a).Q.shape == a.shape
    assert torch.linalg.eigh(a + a.mT).eigenvalues.shape == (3, 16)
    assert torch.linalg.cholesky_ex(a).L.shape == a.shape
    assert torch.linalg.lu_factor_ex(a).LU.shape == a.shape
    assert torch.linalg.norm(a).shape == ()


def linear_systems() -> None:
    a = torch.eye(16).cuda()
    b = torch.randn(16, 4, device="cuda")
    assert torch.linalg.solve(a, b).shape == (16, 4)
    assert torch.linalg.inv(a).shape == (16, 16)
    assert torch.linalg.lstsq(a, b).solution.shape == (16, 4)
    assert torch.linalg.solve_triangular(a, b, upper=True).shape == (16, 4)
    assert torch.linalg.det(a).shape == ()


def sparse_matrices() -> None:
    dense = torch.randn(32, 8, device="cuda")
    indices = torch.stack([torch.arange(32), torch.arange(32).flip(0)])
    coo = torch.sparse_coo_tensor(indices, torch.ones(32), (32, 32), check_invariants=False).cuda()
    assert (coo @ dense).shape == (32, 8)
    csr = torch.sparse_csr_tensor(torch.arange(33), torch.arange(32), torch.ones(32), (32, 32)).cuda()
    assert (csr @ dense).shape == (32, 8)
    assert (csr @ dense[:, 0]).shape == (32,)


def sparse_by_sparse() -> None:
    csr = torch.sparse_csr_tensor(torch.arange(33), torch.arange(32), torch.ones(32), (32, 32)).cuda()
    print((csr @ csr).shape)


def half_of_a_matrix_sparse() -> None:
    from torch.sparse import to_sparse_semi_structured

    torch.sparse.SparseSemiStructuredTensor._FORCE_CUTLASS = False
    a = torch.tensor([0, 0, 1, 1], dtype=torch.float16).tile((128, 32)).cuda()
    print((to_sparse_semi_structured(a) @ torch.ones(128, 128, dtype=torch.float16, device="cuda")).shape)


def int8_products() -> None:
    a = torch.ones(32, 64, dtype=torch.int8, device="cuda")
    assert torch._int_mm(a, a.t().contiguous()[:, :32].contiguous()).dtype == torch.int32


def fp8_products() -> None:
    a, b = (torch.ones(64, 128, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device="cuda")
    assert torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16).shape == (64, 64)
    assert torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True).shape == (64, 64)
