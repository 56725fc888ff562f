//! The objects that tests apply, as YAML.

use std::path::Path;

use crate::cluster::Cluster;

/// A demo backend: a Deployment and a Service of that name with port 8080, named `http`. Its pods go on accepting for 3 s after
/// SIGTERM, as a backend must that is to be rolled without loss.
pub fn backend(cluster: &Cluster, name: &str, replicas: u32) -> String {
    format!(
        "{}---\n{}",
        deployment(cluster, name, replicas),
        format_args!(
            "apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  selector: {{app: {name}}}
  ports: [{{name: http, port: 8080, targetPort: http}}]
"
        )
    )
}

/// A demo backend whose pods exit at once on SIGTERM, and write the ids of POSTs that come to them into a directory of the node.
pub fn abrupt_backend(cluster: &Cluster, name: &str, replicas: u32, record: &Path) -> String {
    let arguments = format!("--name, {name}, --drain-ms, '3000'");
    let volume = format!(
        "        volumeMounts: [{{name: record, mountPath: /record}}]
      volumes: [{{name: record, hostPath: {{path: {}, type: Directory}}}}]
",
        record.display()
    );
    let objects = backend(cluster, name, replicas);
    let objects = objects.replace(&arguments, &format!("--name, {name}, --abrupt, --record, /record"));
    objects.replacen("---\n", &format!("{volume}---\n"), 1)
}

/// A headless Service `manual` without selector, whose EndpointSlices a test makes by hand.
pub const MANUAL_SERVICE: &str = "apiVersion: v1
kind: Service
metadata: {name: manual}
spec:
  clusterIP: None
  ports: [{name: http, port: 80, targetPort: 8080}]
";

/// The Deployment of a demo backend.
pub fn deployment(cluster: &Cluster, name: &str, replicas: u32) -> String {
    let image = &cluster.image;
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  strategy: {{rollingUpdate: {{maxUnavailable: 0, maxSurge: 1}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 20
      securityContext: {{runAsNonRoot: true, runAsUser: 65532}}
      containers:
      - name: demo
        image: {image}
        args: [demo-backend, --listen, '0.0.0.0:8080', --name, {name}, --drain-ms, '3000']
        ports: [{{name: http, containerPort: 8080}}]
        readinessProbe: {{httpGet: {{path: /healthz, port: http}}, periodSeconds: 1}}
"
    )
}

/// A Selector of one hostname.
pub fn selector(name: &str, host: &str) -> String {
    format!(
        "apiVersion: lockgate.dev/v1alpha1
kind: Selector
metadata: {{name: {name}}}
spec:
  hostnames: ['{host}']
"
    )
}

/// A Route that sends everything of its Selector to port 8080 of one Service.
pub fn route(name: &str, selector: &str, service: &str) -> String {
    route_with(name, selector, &format!("- backends: [{{service: {service}, port: 8080}}]"))
}

/// A Route with these rules, a YAML list without indentation.
pub fn route_with(name: &str, selector: &str, rules: &str) -> String {
    let rules = rules.trim().replace('\n', "\n  ");
    format!(
        "apiVersion: lockgate.dev/v1alpha1
kind: Route
metadata: {{name: {name}}}
spec:
  selectors: [{{name: {selector}}}]
  rules:
  {rules}
"
    )
}

/// Documents of one file.
pub fn all(documents: &[String]) -> String {
    documents.join("---\n")
}
