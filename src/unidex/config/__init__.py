"""The settings of a recipe: one module per section, recipes by name, stages, and every refused combination."""

from unidex.config.augment import Augment as Augment
from unidex.config.encoder import Encoder as Encoder
from unidex.config.features import Features as Features
from unidex.config.heads import Heads as Heads
from unidex.config.loss import Loss as Loss
from unidex.config.pool import Pool as Pool
from unidex.config.predict import Predict as Predict
from unidex.config.recipe import Config as Config
from unidex.config.recipe import Stage as Stage
from unidex.config.recipe import merged as merged
from unidex.config.recipe import parse as parse
from unidex.config.recipe import settings_with_meaning as settings_with_meaning
from unidex.config.section import Section as Section
from unidex.config.train import Train as Train
from unidex.config.tree import Tree as Tree
