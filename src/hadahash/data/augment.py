from .preprocess import augment, mix_targets, sample_augmentations

__all__ = ["augment", "mix_targets", "sample_augmentations"]
