//! Certificates from Secrets of a real cluster, where the gateway may read those of one namespace.

use anyhow::{Context, ensure};
use lockgate_e2e::namespace::Namespace;
use lockgate_e2e::objects::{all, backend, route};
use lockgate_e2e::system::{Gateway, NAMESPACE, connect};
use lockgate_e2e::tls::{Authority, Pair};
use lockgate_e2e::wait::eventually;

const ACCOUNT: &str = "system:serviceaccount:lockgate-system:lockgate";

/// What docs/tls.md tells whoever owns a namespace to apply.
const BINDING: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: lockgate-certificates}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lockgate-certificates}
subjects: [{kind: ServiceAccount, name: lockgate, namespace: lockgate-system}]
";

/// Waits until both replicas show a certificate, by a dozen connections in a row.
async fn shows(gateway: &Gateway, authority: &Authority, host: &str, pair: &Pair) {
    eventually(&format!("the certificate of {host} is shown"), async || {
        for _ in 0..12 {
            let shown = authority.shown(&gateway.secure_address(), host).await?;
            ensure!(shown == pair.certificate, "another one is shown");
        }
        Ok(())
    })
    .await;
}

/// Waits until both replicas refuse the handshake because there is no certificate.
async fn refuses(gateway: &Gateway, authority: &Authority, host: &str) {
    eventually(&format!("there is no certificate for {host}"), async || {
        for _ in 0..12 {
            let error = authority.shown(&gateway.secure_address(), host).await.err().context("there is one")?;
            ensure!(format!("{error:#}").contains("UnrecognisedName"), "{error:#}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_follows_its_secret() {
    let (cluster, gateway) = connect().await;
    let namespace = Namespace::new(&cluster, "tls").await;
    let (host, authority) = (namespace.host(), Authority::default());
    let selector = format!(
        "apiVersion: lockgate.dev/v1alpha1\nkind: Selector\nmetadata: {{name: shop}}\nspec:\n  hostnames: ['{host}']\n  tls: \
         {{secretName: shop-tls}}\n"
    );
    let (first, second) = (authority.issue(&host), authority.issue(&host));
    namespace.apply(&all(&[backend(&cluster, "one", 1), selector, route("shop", "shop", "one")])).await;
    namespace.apply(&first.secret("shop-tls")).await;
    namespace.rolled_out("one").await;

    // Nobody has let the gateway read here.
    let denied = namespace.has("selector", "shop", "ResolvedRefs", "False", "InvalidCertificateRef").await;
    assert!(denied.message.contains("may not read Secret"), "{denied:?}");
    refuses(&gateway, &authority, &host).await;
    gateway.answers(&host, "/", "one").await;

    namespace.apply(BINDING).await;
    namespace.has("selector", "shop", "ResolvedRefs", "True", "ResolvedRefs").await;
    shows(&gateway, &authority, &host, &first).await;

    namespace.apply(&second.secret("shop-tls")).await;
    shows(&gateway, &authority, &host, &second).await;

    namespace.kubectl(&["delete", "secret", "shop-tls"]).await.unwrap();
    let gone = namespace.has("selector", "shop", "ResolvedRefs", "False", "InvalidCertificateRef").await;
    assert!(gone.message.contains("does not exist"), "{gone:?}");
    refuses(&gateway, &authority, &host).await;
    gateway.answers(&host, "/", "one").await;

    let wrong = second.secret("shop-tls").replace("kubernetes.io/tls", "Opaque");
    namespace.apply(&wrong).await;
    eventually("what is wrong with the Secret is told", async || {
        let condition = namespace.condition("selector", "shop", "ResolvedRefs").await?;
        ensure!(condition.message.contains("is of type Opaque"), "{condition:?}");
        Ok(())
    })
    .await;

    // All of this without a right on the Secrets of others.
    for place in ["--all-namespaces", "--namespace=default", &format!("--namespace={NAMESPACE}")] {
        let asked = cluster.kubectl(&["auth", "can-i", "list", "secrets", place, "--as", ACCOUNT]).await;
        assert!(asked.is_err(), "{place}: {asked:?}");
    }
}
