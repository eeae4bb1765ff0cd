// Bindings of the trellis, its dynamic programs, the codebooks and the losses.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <atomic>

#include "bindings/bindings.hpp"
#include "core/parallel.hpp"
#include "kernels/kernels.hpp"
#include "structure/codebook.hpp"
#include "structure/similar_buckets.hpp"

using namespace nb::literals;

namespace ltls {

LossId loss_of(std::string_view name) {
    const Kernels& build = kernels();
    std::string names;
    for (LossId id = 0; id < build.n_losses; ++id) {
        if (name == build.losses[id].name) return id;
        names += std::string(id > 0 ? ", '" : "'") + build.losses[id].name + "'";
    }
    throw std::invalid_argument("loss must be one of " + names + ", got '" + std::string(name) +
                                "'");
}

namespace {

// Runs a dynamic program over the rows in threads. work(first, count) returns its first bad row, or
// −1.
template <class T, class Work>
void for_rows(const Trellis& trellis, const InMatrix<T>& h, int n_jobs, Work&& work) {
    check_size("a row of h", h.shape(1), trellis.n_edges);
    const int threads = threads_for(n_jobs);
    const Index none = max_classes;
    std::atomic<Index> bad_row{none};
    {
        const ReleasedGil release;
        in_parallel(size(h.shape(0)), threads, [&](Index first, Index last) {
            const Index bad = work(first, last - first);
            if (bad < 0) return;
            Index known = bad_row;
            while (first + bad < known && !bad_row.compare_exchange_weak(known, first + bad)) {
            }
        });
    }
    if (bad_row != none)
        throw std::invalid_argument(
            "edge scores h must be below +inf (-inf forbids an edge), row " +
            std::to_string(bad_row) + " holds NaN or +inf");
}

template <class T>
void viterbi(const Trellis& trellis, InMatrix<T> h, Out<Index> paths, Out<T> scores, int n_jobs) {
    check_size("paths", paths.size(), size(h.shape(0)));
    check_size("scores", scores.size(), size(h.shape(0)));
    for_rows<T>(trellis, h, n_jobs, [&](Index first, Index count) {
        return kernels().programs<T>().viterbi(trellis, h.data() + first * trellis.n_edges, count,
                                               paths.data() + first, scores.data() + first);
    });
}

template <class T>
void topk(const Trellis& trellis, InMatrix<T> h, OutMatrix<Index> paths, OutMatrix<T> scores,
          int n_jobs) {
    const Index k = size(paths.shape(1));
    if (k < 1 || k > trellis.n_classes)
        throw std::invalid_argument("k must be between 1 and " + std::to_string(trellis.n_classes) +
                                    ", got " + std::to_string(k));
    check_size("paths", paths.size(), size(h.shape(0)) * k);
    check_size("scores", scores.size(), size(h.shape(0)) * k);
    for_rows<T>(trellis, h, n_jobs, [&](Index first, Index count) {
        return kernels().programs<T>().topk(trellis, h.data() + first * trellis.n_edges, count, k,
                                            paths.data() + first * k, scores.data() + first * k);
    });
}

template <class T>
void log_partition(const Trellis& trellis, InMatrix<T> h, Out<T> totals, int n_jobs) {
    check_size("totals", totals.size(), size(h.shape(0)));
    for_rows<T>(trellis, h, n_jobs, [&](Index first, Index count) {
        return kernels().programs<T>().log_partition(trellis, h.data() + first * trellis.n_edges,
                                                     count, totals.data() + first);
    });
}

template <class T>
void marginals(const Trellis& trellis, InMatrix<T> h, OutMatrix<T> out, int n_jobs) {
    check_size("marginals", out.size(), size(h.size()));
    for_rows<T>(trellis, h, n_jobs, [&](Index first, Index count) {
        return kernels().programs<T>().marginals(trellis, h.data() + first * trellis.n_edges, count,
                                                 out.data() + first * trellis.n_edges);
    });
}

template <class T>
void sample(const Trellis& trellis, InMatrix<T> h, std::uint64_t seed, OutMatrix<Index> paths,
            OutMatrix<T> log_probabilities, int n_jobs) {
    const Index n = size(paths.shape(1));
    check_size("paths", paths.size(), size(h.shape(0)) * n);
    check_size("log_probabilities", log_probabilities.size(), size(paths.size()));
    for_rows<T>(trellis, h, n_jobs, [&](Index first, Index count) {
        return kernels().programs<T>().sample(trellis, h.data() + first * trellis.n_edges, count, n,
                                              seed + static_cast<std::uint64_t>(first),
                                              paths.data() + first * n,
                                              log_probabilities.data() + first * n);
    });
}

// The scores of given paths, several per row, summed in the same order as in the recursions.
template <class T>
void score(const Trellis& trellis, InMatrix<T> h, InMatrix<Index> paths, OutMatrix<T> scores,
           int n_jobs) {
    check_size("paths", paths.shape(0), size(h.shape(0)));
    check_size("scores", scores.size(), size(paths.size()));
    check_range("paths", paths.data(), size(paths.size()), 0, trellis.n_classes);
    const Index k = size(paths.shape(1));
    for_rows<T>(trellis, h, n_jobs, [&](Index first, Index count) -> Index {
        for (Index row = first; row < first + count; ++row) {
            const T* edge_scores = h.data() + row * trellis.n_edges;
            for (Index e = 0; e < trellis.n_edges; ++e)
                if (!(edge_scores[e] <= std::numeric_limits<T>::max())) return row - first;
            for (Index j = row * k; j < (row + 1) * k; ++j) {
                T sum = 0;
                trellis.each_edge(paths.data()[j], [&](Index edge) { sum += edge_scores[edge]; });
                scores.data()[j] = sum;
            }
        }
        return -1;
    });
}

template <class T>
void bind_dynamic_programs(nb::class_<Trellis>& trellis) {
    trellis.def("score", &score<T>, "h"_a, "paths"_a, "scores"_a, "n_jobs"_a)
        .def("viterbi", &viterbi<T>, "h"_a, "paths"_a, "scores"_a, "n_jobs"_a)
        .def("topk", &topk<T>, "h"_a, "paths"_a, "scores"_a, "n_jobs"_a)
        .def("log_partition", &log_partition<T>, "h"_a, "totals"_a, "n_jobs"_a)
        .def("marginals", &marginals<T>, "h"_a, "out"_a, "n_jobs"_a)
        .def("sample", &sample<T>, "h"_a, "seed"_a, "paths"_a, "log_probabilities"_a, "n_jobs"_a);
}

void path_edges(const Trellis& trellis, In<Index> paths, OutMatrix<Index> edges) {
    check_range("paths", paths.data(), size(paths.size()), 0, trellis.n_classes);
    check_size("edges", edges.size(), size(paths.size()) * trellis.longest_path());
    const ReleasedGil release;
    for (Index row = 0; row < size(paths.size()); ++row) {
        Index* out = edges.data() + row * trellis.longest_path();
        Index* const end = out + trellis.longest_path();
        trellis.each_edge(paths.data()[row], [&](Index edge) { *out++ = edge; });
        while (out < end) *out++ = -1;
    }
}

void bind_trellis(nb::module_& module) {
    nb::class_<Trellis> trellis(module, "Trellis");
    trellis.def(nb::init<Index, Index>(), "n_classes"_a, "width"_a)
        .def_ro("n_classes", &Trellis::n_classes)
        .def_ro("width", &Trellis::width)
        .def_ro("n_slices", &Trellis::n_slices)
        .def_ro("n_edges", &Trellis::n_edges)
        .def_prop_ro("longest_path", &Trellis::longest_path)
        .def_prop_ro("digits",
                     [](const Trellis& t) {
                         return std::vector<Index>(t.digits, t.digits + t.n_slices + 1);
                     })
        .def(
            "edges",
            [](const Trellis& t, OutMatrix<Index> out) {
                check_size("out", out.size(), 2 * t.n_edges);
                t.each_arc([&](Index edge, Index tail, Index head) {
                    out.data()[2 * edge] = tail;
                    out.data()[2 * edge + 1] = head;
                });
            },
            "out"_a)
        .def("path_edges", &path_edges, "paths"_a, "edges"_a)
        .def(
            "path_of",
            [](const Trellis& t, In<Index> edges) {
                return t.path_of(edges.data(), size(edges.size()));
            },
            "edges"_a)
        .def("grown", &Trellis::grown)
        .def(
            "edge_map",
            [](const Trellis& t, const Trellis& larger, Out<Index> out) {
                check_size("out", out.size(), t.n_edges);
                t.edge_map(larger, out.data());
            },
            "larger"_a, "out"_a);
    bind_dynamic_programs<float>(trellis);
    bind_dynamic_programs<double>(trellis);
}

// Applies a codebook to every entry of an array.
template <class Map>
void look_up(const char* name, In<Index> from, Out<Index> to, Index limit, Map&& map) {
    check_size("out", to.size(), size(from.size()));
    check_range(name, from.data(), size(from.size()), 0, limit);
    const ReleasedGil release;
    for (Index i = 0; i < size(from.size()); ++i) to.data()[i] = map(from.data()[i]);
}

void bind_codebooks(nb::module_& module) {
    nb::class_<RandomCodebook>(module, "RandomCodebook")
        .def(
            "__init__",
            [](RandomCodebook* book, nb::typed<nb::list, Index> sizes, std::uint64_t seed) {
                std::vector<Index> copy;
                for (nb::handle each : sizes) copy.push_back(nb::cast<Index>(each));
                new (book) RandomCodebook(copy, seed);
            },
            "sizes"_a, "seed"_a)
        .def_prop_ro("sizes", &RandomCodebook::sizes)
        .def_prop_ro("seed", &RandomCodebook::seed)
        .def_prop_ro("n_paths", &RandomCodebook::size)
        .def_prop_ro("n_labels", &RandomCodebook::size)
        .def(
            "path_of",
            [](const RandomCodebook& book, In<Index> labels, Out<Index> out) {
                look_up("labels", labels, out, book.size(),
                        [&](Index label) { return book.path_of(label); });
            },
            "labels"_a, "out"_a)
        .def(
            "label_of",
            [](const RandomCodebook& book, In<Index> paths, Out<Index> out) {
                look_up("paths", paths, out, book.size(),
                        [&](Index path) { return book.label_of(path); });
            },
            "paths"_a, "out"_a);

    nb::class_<TableCodebook>(module, "TableCodebook")
        .def(
            "__init__",
            [](TableCodebook* book, Index n_paths, In<Index> paths) {
                new (book) TableCodebook(n_paths, paths.data(), size(paths.size()));
            },
            "n_paths"_a, "paths"_a)
        .def_prop_ro("n_paths", &TableCodebook::n_paths)
        .def_prop_ro("n_labels", &TableCodebook::n_labels)
        .def_prop_ro("n_free", &TableCodebook::n_free)
        .def(
            "path_of",
            [](const TableCodebook& book, In<Index> labels, Out<Index> out) {
                look_up("labels", labels, out, book.n_labels(),
                        [&](Index label) { return book.path_of(label); });
            },
            "labels"_a, "out"_a)
        .def(
            "label_of",
            [](const TableCodebook& book, In<Index> paths, Out<Index> out) {
                look_up("paths", paths, out, book.n_paths(),
                        [&](Index path) { return book.label_of(path); });
            },
            "paths"_a, "out"_a)
        .def("free_path", &TableCodebook::free_path)
        .def("assign", &TableCodebook::assign, "label"_a, "path"_a)
        .def("release", &TableCodebook::release, "label"_a)
        .def("grow", &TableCodebook::grow, "n_paths"_a);

    nb::class_<BucketCodebook>(module, "BucketCodebook")
        .def(
            "__init__",
            [](BucketCodebook* book, Index n_paths, In<Index> paths) {
                new (book) BucketCodebook(n_paths, paths.data(), size(paths.size()));
            },
            "n_paths"_a, "paths"_a)
        .def_prop_ro("n_paths", &BucketCodebook::n_paths)
        .def_prop_ro("n_labels", &BucketCodebook::n_labels)
        .def(
            "path_of",
            [](const BucketCodebook& book, In<Index> labels, Out<Index> out) {
                look_up("labels", labels, out, book.n_labels(),
                        [&](Index label) { return book.path_of(label); });
            },
            "labels"_a, "out"_a)
        .def(
            "label_of",
            [](const BucketCodebook& book, In<Index> paths, Out<Index> out) {
                look_up("paths", paths, out, book.n_paths(),
                        [&](Index path) { return book.label_of(path); });
            },
            "paths"_a, "out"_a);
}

// Puts labels into buckets of similar ones, once for every seed.
void similar_buckets(In<Index> indptr, In<Index> indices, In<float> values, Index n_dimensions,
                     In<std::uint64_t> seeds, OutMatrix<Index> buckets, Index n_buckets,
                     int n_jobs) {
    const Index n_labels = size(buckets.shape(1)), count = size(values.size());
    check_size("seeds", seeds.size(), size(buckets.shape(0)));
    check_size("indptr", indptr.size(), n_labels + 1);
    check_size("indices", indices.size(), count);
    check_range("indptr", indptr.data(), n_labels + 1, 0, count + 1);
    check_range("indices", indices.data(), count, 0, n_dimensions);
    if (n_buckets < 1 || n_buckets > n_labels)
        throw std::invalid_argument("n_buckets must be between 1 and " + std::to_string(n_labels) +
                                    ", got " + std::to_string(n_buckets));
    const int threads = threads_for(n_jobs);
    nb::gil_scoped_release release;
    SimilarBuckets({indptr.data(), indices.data(), values.data(), n_labels, n_dimensions},
                   n_buckets, {seeds.data(), seeds.data() + seeds.size()})
        .run(buckets.data(), threads);
}

void decode_scores(const Trellis& trellis, std::string_view loss, InMatrix<float> h,
                   OutMatrix<float> g) {
    check_size("a row of h", h.shape(1), trellis.n_edges);
    check_size("g", g.size(), size(h.size()));
    const auto decode = kernels().losses[loss_of(loss)].decode_scores;
    const ReleasedGil release;
    if (!decode)
        std::copy_n(h.data(), h.size(), g.data());
    else
        for (Index row = 0; row < size(h.shape(0)); ++row)
            decode(trellis, h.data() + row * trellis.n_edges, g.data() + row * trellis.n_edges);
}

void bind_losses(nb::module_& module) {
    nb::class_<LossInfo>(module, "Loss")
        .def_prop_ro("name", [](const LossInfo& loss) { return std::string(loss.name); })
        .def_ro("normalizes", &LossInfo::normalizes)
        .def_ro("needs_positives", &LossInfo::needs_positives)
        .def_prop_ro("decodes_h", [](const LossInfo& loss) { return !loss.decode_scores; });
    module.def("losses", [] {
        const Kernels& build = kernels();
        return std::vector<LossInfo>(build.losses, build.losses + build.n_losses);
    });
    module.def("decode_scores", &decode_scores, "trellis"_a, "loss"_a, "h"_a, "g"_a);
}

}  // namespace

void bind_structure(nb::module_& module) {
    bind_trellis(module);
    bind_codebooks(module);
    module.def("similar_buckets", &similar_buckets, "indptr"_a, "indices"_a, "values"_a,
               "n_dimensions"_a, "seeds"_a, "buckets"_a, nb::kw_only(), "n_buckets"_a, "n_jobs"_a);
    bind_losses(module);
}

}  // namespace ltls
