// Bindings of decoding.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <atomic>
#include <vector>

#include "bindings/bindings.hpp"
#include "core/parallel.hpp"
#include "kernels/kernels.hpp"
#include "structure/codebook.hpp"

using namespace nb::literals;

namespace ltls {

static const LabelMap& label_map(nb::handle codebook) {
    if (nb::isinstance<TableCodebook>(codebook)) return nb::cast<const TableCodebook&>(codebook);
    if (nb::isinstance<BucketCodebook>(codebook)) return nb::cast<const BucketCodebook&>(codebook);
    return nb::cast<const RandomCodebook&>(codebook);
}

std::vector<const LabelMap*> label_maps(const Trellis& trellis, nb::list codebooks) {
    std::vector<const LabelMap*> maps;
    for (nb::handle codebook : codebooks) {
        if (nb::cast<Index>(codebook.attr("n_paths")) != trellis.n_classes)
            throw std::invalid_argument("codebooks must have a path per class of the trellis");
        maps.push_back(&label_map(codebook));
        const Buckets *const buckets = maps.back()->buckets(), *const first =
                                                                   maps.front()->buckets();
        if (!buckets != !first || (buckets && buckets->n_labels != first->n_labels))
            throw std::invalid_argument("codebooks must all have buckets of the same labels");
    }
    return maps;
}

void check_decoding(const Trellis& trellis, const std::vector<const LabelMap*>& maps,
                    Index n_labels, Index n_paths, Index k) {
    const Buckets* const buckets = maps.empty() ? nullptr : maps.front()->buckets();
    const Index most = buckets ? buckets->n_labels : trellis.n_classes;
    if (n_labels < 0 || n_labels > most)
        throw std::invalid_argument("n_labels must be between 0 and " + std::to_string(most) +
                                    ", the number of " + (buckets ? "labels" : "paths") +
                                    " of the codebooks, got " + std::to_string(n_labels));
    check_at_least("k", k, 1);
    if (n_paths < 1 || n_paths > trellis.n_classes)
        throw std::invalid_argument("n_paths must be between 1 and " +
                                    std::to_string(trellis.n_classes) + ", got " +
                                    std::to_string(n_paths));
}

void throw_not_finite() {
    throw std::invalid_argument(
        "edge scores are not finite: X or the weights are too large for float32");
}

namespace {

// Finds the best labels of rows of h, which has one block of edge scores per trellis.
void decode(const Trellis& trellis, nb::list codebooks, InMatrix<float> h, std::string_view loss,
            Index n_labels, Index n_paths, OutMatrix<Index> labels, OutMatrix<float> scores,
            int n_jobs) {
    const std::vector<const LabelMap*> maps = label_maps(trellis, codebooks);
    const Index rows = size(h.shape(0)), k = size(labels.shape(1));
    const Index n_trellises = size(maps.size());
    if (n_trellises < 1 || size(h.shape(1)) % n_trellises != 0 ||
        size(h.shape(1)) / n_trellises < trellis.n_edges)
        throw std::invalid_argument("h must hold a block of edge scores per codebook");
    check_decoding(trellis, maps, n_labels, n_paths, k);
    check_size("labels", labels.size(), rows * k);
    check_size("scores", scores.size(), rows * k);
    const Index block = size(h.shape(1)) / n_trellises;
    const DecodeOptions options{loss_of(loss), block, maps.data(), n_trellises, n_labels,
                                n_paths,       k};
    const int threads = threads_for(n_jobs);
    std::atomic<bool> bad{false};
    {
        const ReleasedGil release;
        in_parallel(rows, threads, [&](Index first, Index last) {
            const Index bad_row = kernels().decode(
                trellis, options, h.data() + first * n_trellises * block, last - first,
                labels.data() + first * k, scores.data() + first * k);
            if (bad_row >= 0) bad = true;
        });
    }
    if (bad) throw_not_finite();
}

}  // namespace

void bind_inference(nb::module_& module) {
    module.def("decode", &decode, "trellis"_a, "codebooks"_a, "h"_a, "loss"_a, "n_labels"_a,
               "n_paths"_a, "labels"_a, "scores"_a, "n_jobs"_a);
}

}  // namespace ltls
