"""The dynamic programs on tensors: custom operators, their backends, and a plain torch reference.

`custom` registers the operators with `torch.library`. They run on `engine`, the compiled engine, on
a CPU, and on `launch`, which launches the Triton kernels of `triton`, on a GPU. `reference` has the
same dynamic programs in plain torch operations. `cluster_loss` launches the kernels of `clusters`,
for the loss of an adaptive softmax.
"""
