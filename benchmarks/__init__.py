"""Where the figures of the README and of docs/results come from.

Each of these runs from the top of the repository, with --help for its options:

    python -m benchmarks.accuracy             ltls beside its peers: scores, size, time (hours)
    python -m benchmarks.speed                single rows and loading, beside its peers
    python -m benchmarks.blocks               sparse and dense features, alone and together
    python -m benchmarks.embeddings           dense rows beside nearest neighbours and softmax
    python -m benchmarks.calibration          are probabilities right?
    python -m benchmarks.settings NAME        what a setting does: views, codebooks, rounding
    python -m benchmarks.tasks NAME           whole tasks: raw text, small dense problems, the demo
    python -m benchmarks.continual            labels that arrive after training, beside its peers
    python -m benchmarks.micro NAME           parts of the engine: readers, programs, growth, ...
    python -m benchmarks.debian_contents FOLDER  a data set of a million labels, from apt's indices
    python -m benchmarks.scale NAME           a million labels beside peers; ten million rows
    python -m benchmarks.serving              the server under load
    python -m benchmarks.paper                the paper's tables with the paper's settings
    python -m benchmarks.deep_head.step       a training step of an output layer, on a GPU
    python -m benchmarks.deep_head.corpus FILE   tokens of Python code, or English words
    python -m benchmarks.deep_head.language_model CORPUS  a transformer's next token, on a GPU
    python -m benchmarks.deep_head.next_items FILE  histories of items, and the items that follow
    python -m benchmarks.deep_head.recommend FILE   the next item of a user: semantic IDs
    python -m benchmarks.deep_head.restricted answers among some classes, or within a category
    python -m benchmarks.deep_head.omniglot   handwritten characters by networks, on a GPU
    python -m benchmarks.reliability          how much was tried of docs/reliability.md (hours)
    python -m benchmarks.pages                puts what is stored into docs

What was measured is kept as JSON in benchmarks/results. Those that need data sets look for them in
the folder that the environment variable LTLS_DATA names.
"""
