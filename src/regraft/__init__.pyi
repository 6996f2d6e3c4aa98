"""The types of what `__init__.py` exports on first use."""

from regraft.api import CheckResult as CheckResult
from regraft.api import bench as bench
from regraft.api import check as check
from regraft.api import verify as verify
from regraft.live import Optimization as Optimization
from regraft.live import optimize as optimize
from regraft.live import restore as restore
from regraft.live import watch as watch
from regraft.splitting import Unsplittable as Unsplittable
from regraft.splitting import load_split as load_split
from regraft.splitting import split as split
from regraft.verification import Verdict as Verdict
from regraft.verification import VerifyError as VerifyError

__version__: str
