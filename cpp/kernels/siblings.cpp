// The training of label weights, compiled once per instruction set without fused multiply-add.
// Which rows a label visits, and when it ends, depends on comparisons: a sum that one build rounds
// otherwise could change them, and weights by more than a rounding error.
#include "kernels/kernels.hpp"
#include "training/sibling_trainer.hpp"

namespace ltls::LTLS_ISA {

SiblingTrainer* sibling_trainer(const Features& x, const LabelRows& labels,
                                const SiblingOptions& options) {
    return new CoordinateDescent(x, labels, options);
}

}  // namespace ltls::LTLS_ISA
