import pytest


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread: the tensors here are too small to gain from more."""
    torch = pytest.importorskip("torch", reason="needs torch: run make test-all")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
