"""Manifests for Kubernetes: rendered, valid, restricted, and what they say twice is the same."""

import functools
import json
import re
import shutil
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from kcl_mld.cli import cli
from tests.checkout import run
from tests.generated_metrics import kubernetes_alerts, series_names
from tests.markdown_pages import ROOT, page
from tests.page_commands import blocks_of

FOLDER = ROOT / "packaging" / "kubernetes"
OVERLAYS = ("polling", "fan-out", "spark")
#: The oldest version that has all fields, and the newest that the validator knows.
VERSIONS = ("1.27", "1.37")
#: What a stop may take beyond ``shutdownGraceMillis``: late children are killed, the last metrics sent.
AFTER_THE_GRACE_S = 10
#: Packages with models that are made from the definitions of custom resources.
MODELS = ("cloudcoil-models-keda>=2.16", "cloudcoil-models-prometheus-operator>=0.80")
KUBECTL = shutil.which("kubectl")
PROMTOOL = shutil.which("promtool")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="there is no promtool: apt-get install prometheus"
)
CRDS = [FOLDER / "components" / name for name in (
    "keda/scaled-object.yaml", "prometheus/pod-monitor.yaml", "prometheus/alerts.yaml"
)]  # fmt: skip


@functools.cache
def rendered(folder):
    """Documents of a folder with a kustomization, as kubectl makes them."""
    done = subprocess.run(
        [KUBECTL, "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one is not None]


def overlay(name):
    return rendered(FOLDER / "overlays" / name)


def of_kind(documents, kind):
    (found,) = [one for one in documents if one["kind"] == kind]
    return found


def properties_of(name):
    """The text of an overlay's properties file, as its pods get it."""
    (text,) = of_kind(overlay(name), "ConfigMap")["data"].values()
    return text


def grace_s(text):
    """``shutdownGraceMillis`` of a properties file, in seconds."""
    found = re.search(r"(?m)^shutdownGraceMillis = (\d+)$", text)
    assert found is not None
    return int(found[1]) / 1000


def container_of(deployment):
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return found


# -- valid ----------------------------------------------------------------------------------------


@needs_kubectl
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_has_only_fields_that_the_api_knows(name, version):
    documents = overlay(name)
    assert len(documents) == 6
    for one in documents:
        kubernetes_validate.validate(one, version, strict=True)


@needs_kubectl
def test_a_wrong_field_and_a_wrong_value_are_seen():
    for path, value in ((("replica",), 3), (("replicas",), "three")):
        deployment = yaml.safe_load(yaml.safe_dump(of_kind(overlay("polling"), "Deployment")))
        deployment["spec"][path[0]] = value
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(deployment, VERSIONS[0], strict=True)


#: Says what a custom resource has that the model of its definition lacks or refuses.
_CHECK = """
import json, sys
from cloudcoil.models.keda.v1alpha1 import ScaledObject
from cloudcoil.models.prometheus_operator.v1 import PodMonitor, PrometheusRule

models = {one.__name__: one for one in (ScaledObject, PodMonitor, PrometheusRule)}
for document in json.load(sys.stdin):
    try:
        known = models[document["kind"]].model_validate(document)
    except ValueError as error:
        print(document["metadata"]["name"], error, sep=": ")
        continue
    kept = known.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if kept != document:
        print(document["metadata"]["name"], kept, sep=": ")
"""


@pytest.fixture(scope="module")
def python_with_models(tmp_path_factory):
    """An environment of its own: the models bring a plugin for pytest."""
    folder = tmp_path_factory.mktemp("models") / "venv"
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder.parent)
    run(*pip, "--python", folder, "install", *MODELS, folder=folder.parent)
    return folder / "bin" / "python"


@pytest.mark.proof
def test_custom_resources_have_only_fields_of_their_definitions(python_with_models):
    good = [yaml.safe_load(path.read_text("utf-8")) for path in CRDS]
    unknown, lacking = (yaml.safe_load(CRDS[0].read_text("utf-8")) for _ in range(2))
    unknown["spec"]["minReplicas"] = 1
    del lacking["spec"]["scaleTargetRef"]
    names = []
    for number, document in enumerate((*good, unknown, lacking)):
        document["metadata"]["name"] = f"document-{number}"
        names.append(f"document-{number}")
    done = subprocess.run(
        [python_with_models, "-c", _CHECK],
        input=json.dumps([*good, unknown, lacking]), capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = [
        line.split(": ")[0] for line in done.stdout.splitlines() if line.startswith("document-")
    ]
    assert told == names[-2:], done.stdout


# -- what is said twice ---------------------------------------------------------------------------


@needs_kubectl
@pytest.mark.parametrize("name", OVERLAYS)
def test_a_pod_has_more_time_than_its_worker_takes(name):
    pod = of_kind(overlay(name), "Deployment")["spec"]["template"]["spec"]
    expected = grace_s(properties_of(name)) + AFTER_THE_GRACE_S
    assert pod["terminationGracePeriodSeconds"] == expected


@needs_kubectl
@pytest.mark.parametrize("name", OVERLAYS)
def test_probes_ask_the_port_on_which_the_worker_listens_for_all(name):
    container = container_of(of_kind(overlay(name), "Deployment"))
    (port,) = container["ports"]
    assert container["args"][-2:] == ["--http", f"0.0.0.0:{port['containerPort']}"]
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
    (mount,) = [m for m in container["volumeMounts"] if m["name"] == "properties"]
    assert container["args"][:2] == ["--properties", f"{mount['mountPath']}/app.properties"]


@needs_kubectl
def test_service_budget_and_monitor_choose_the_pods_of_the_deployment():
    documents = overlay("polling")
    labels = of_kind(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]
    monitor = yaml.safe_load(CRDS[1].read_text("utf-8"))
    assert of_kind(documents, "Service")["spec"]["selector"] == labels
    assert of_kind(documents, "Deployment")["spec"]["selector"]["matchLabels"] == labels
    assert of_kind(documents, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert monitor["spec"]["selector"]["matchLabels"] == labels
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (port,) = container_of(of_kind(documents, "Deployment"))["ports"]
    assert endpoint["port"] == port["name"]


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_file_of_an_overlay_is_a_good_one(name):
    path = FOLDER / "overlays" / name / "app.properties"
    done = CliRunner().invoke(cli, ["validate", "--file-only", str(path)])
    assert done.exit_code == 0, done.output
    assert "\nworkerIdPrefix = {hostname}\n" in path.read_text("utf-8")


def test_alerts_in_the_cluster_are_those_of_the_file():
    assert CRDS[2].read_text("utf-8") == kubernetes_alerts()


@needs_kubectl
def test_the_commands_of_the_page_make_what_it_says(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "kubernetes")
    typed = []
    for block in blocks_of("docs/kubernetes.md"):
        if "file" in block.marks:
            run("bash", "-ec", block.commands, folder=tmp_path)
        elif "tests/unit/test_kubernetes.py" in (block.reason or ""):
            typed.append(run("bash", "-ec", block.commands, folder=tmp_path))
    (text,) = typed
    documents = list(yaml.safe_load_all(text))
    deployment = of_kind(documents, "Deployment")
    assert "replicas" not in deployment["spec"]
    assert container_of(deployment)["image"].endswith("/orders:1.0.0")
    annotations = of_kind(documents, "ServiceAccount")["metadata"]["annotations"]
    assert annotations["eks.amazonaws.com/role-arn"].startswith("arn:aws:iam::")
    (properties,) = of_kind(documents, "ConfigMap")["data"].values()
    assert properties == (tmp_path / "app.properties").read_text("utf-8")
    assert (
        grace_s(properties) + AFTER_THE_GRACE_S
        == (deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])
    )
    assert {"PodMonitor", "PrometheusRule", "ScaledObject"} < {one["kind"] for one in documents}
    named = [one for one in documents if one["kind"] != "Namespace"]
    assert {one["metadata"]["namespace"] for one in named} == {"kcl"}
    assert of_kind(documents, "ScaledObject")["spec"]["scaleTargetRef"]["name"] == "kcl-mld"


# -- restricted -----------------------------------------------------------------------------------


def breaches(pod):
    """What the Pod Security Standard "restricted" forbids of a pod's spec, and writable roots."""
    of_pod = pod.get("securityContext", {})
    found = [key for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]
    kinds = {key for volume in pod["volumes"] for key in volume} - {"name"}
    found += sorted(kinds - {"configMap", "emptyDir", "projected", "secret", "downwardAPI"})
    if of_pod.get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"}:
        found.append("seccompProfile")
    if of_pod.get("runAsNonRoot") is not True or of_pod.get("runAsUser", 0) == 0:
        found.append("root")
    for container in pod["containers"]:
        own = container.get("securityContext", {})
        if own.get("allowPrivilegeEscalation") is not False:
            found.append("allowPrivilegeEscalation")
        if own.get("privileged") or own.get("capabilities") != {"drop": ["ALL"]}:
            found.append("capabilities")
        if own.get("readOnlyRootFilesystem") is not True:
            found.append("readOnlyRootFilesystem")
        found += [key for key in ("runAsUser", "runAsNonRoot", "seccompProfile") if key in own]
        found += [f"port {p['hostPort']}" for p in container.get("ports", ()) if "hostPort" in p]
    return found


@needs_kubectl
@pytest.mark.parametrize("name", OVERLAYS)
def test_a_pod_keeps_to_the_restricted_standard(name):
    pod = of_kind(overlay(name), "Deployment")["spec"]["template"]["spec"]
    assert breaches(pod) == []
    assert pod["automountServiceAccountToken"] is False
    written = {
        m["mountPath"] for m in pod["containers"][0]["volumeMounts"] if not m.get("readOnly")
    }
    assert written == {"/tmp", "/home/kcl-mld"}
    labels = of_kind(overlay(name), "Namespace")["metadata"]["labels"]
    assert labels == {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.mark.parametrize(
    ("where", "value", "what"),
    [
        (("securityContext", "runAsUser"), 0, "root"),
        (("securityContext", "seccompProfile"), {"type": "Unconfined"}, "seccompProfile"),
        (("hostNetwork",), True, "hostNetwork"),
        (("containers", 0, "securityContext", "capabilities"), {"drop": []}, "capabilities"),
        (("containers", 0, "securityContext", "readOnlyRootFilesystem"), False, "readOnlyRoot"),
        (("containers", 0, "ports", 0, "hostPort"), 80, "port 80"),
        (("volumes", 1), {"name": "tmp", "hostPath": {"path": "/"}}, "hostPath"),
    ],
)
def test_a_breach_is_seen(where, value, what):
    text = (FOLDER / "base" / "deployment.yaml").read_text("utf-8")
    pod = yaml.safe_load(text)["spec"]["template"]["spec"]
    assert breaches(pod) == []
    place = pod
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    assert any(one.startswith(what) for one in breaches(pod))


# -- the number of workers ------------------------------------------------------------------------


def trigger():
    (found,) = yaml.safe_load(CRDS[0].read_text("utf-8"))["spec"]["triggers"]
    return found["metadata"]


def test_the_trigger_names_series_of_the_catalogue_and_the_job_of_the_monitor():
    query = trigger()["query"]
    names = set(re.findall(r"\bkcl_[a-z_]+", query))
    assert names == {"kcl_process_records_seconds_sum", "kcl_leases_held"}
    assert names <= series_names()
    name = yaml.safe_load(CRDS[1].read_text("utf-8"))["metadata"]["name"]
    namespace = yaml.safe_load((FOLDER / "base/kustomization.yaml").read_text())["namespace"]
    assert set(re.findall(r'job="([^"]+)"', query)) == {f"{namespace}/{name}"}
    states = set(re.search(r'state!~"([^"]+)"', query)[1].split("|"))
    assert states <= set(page("docs/metrics.md").inline_code)
    assert trigger()["threshold"] == "1"


#: Of each worker: seconds that its children are busy in each second, and the shards that it holds.
SCENARIOS = {
    "idle": ([(0.0, 4), (0.0, 4)], 0.0),
    "two workers at their limit": ([(0.7, 4), (0.7, 4)], 2.0),
    "twice what two can do": ([(1.4, 4), (1.4, 4)], 4.0),
    "busy everywhere: never more workers than shards": ([(2.0, 2), (2.0, 2)], 4.0),
    "one hot shard among idle ones": ([(1.0, 4), (0.0, 4)], 1.0 / 0.7),
    "a child that hangs, and shards that are not read": ([(0.0, 8)], 0.0),
}


@needs_promtool
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_trigger_asks_for_what_more_workers_can_do(scenario, tmp_path):
    workers, wanted = SCENARIOS[scenario]
    series = []
    for number, (busy, shards) in enumerate(workers):
        labels = f'job="kcl/kcl-mld",pod="p{number}"'
        series += [
            {
                "series": f"kcl_process_records_seconds_sum{{{labels}}}",
                "values": f"0+{busy * 15}x80",
            },
            {"series": f'kcl_leases_held{{{labels},state="read"}}', "values": f"{shards}x80"},
            {"series": f'kcl_leases_held{{{labels},state="ending"}}', "values": "3x80"},
        ]
    other = 'job="other/other",pod="p"'
    series.append({"series": f"kcl_process_records_seconds_sum{{{other}}}", "values": "0+90x80"})
    answers(tmp_path, series, [{"labels": "{}", "value": round(wanted, 3)}])


@needs_promtool
def test_without_a_worker_the_trigger_has_no_answer(tmp_path):
    """Though the rate still has samples of those that were there."""
    labels = 'job="kcl/kcl-mld",pod="p0"'
    series = [
        {"series": f"kcl_process_records_seconds_sum{{{labels}}}", "values": "0+15x57 stale"},
        {"series": f'kcl_leases_held{{{labels},state="read"}}', "values": "4x57 stale"},
    ]
    answers(tmp_path, series, [])


def answers(folder, series, samples):
    """Ask promtool for the query of the trigger after 15 minutes."""
    test = {
        "interval": "15s",
        "input_series": series,
        "promql_expr_test": [
            {
                "expr": f"round({trigger()['query']}, 0.001)",
                "eval_time": "15m",
                "exp_samples": samples,
            }
        ],
    }
    case = {"evaluation_interval": "15s", "tests": [test]}
    (folder / "case.yml").write_text(yaml.safe_dump(case))
    done = subprocess.run(
        [PROMTOOL, "test", "rules", "case.yml"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
